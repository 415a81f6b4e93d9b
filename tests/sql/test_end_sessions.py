"""end_sessions: exactly the sessions that a suspect was seen to have, and whether they are gone."""

from datetime import timedelta
from time import monotonic
from uuid import UUID

from psycopg.conninfo import make_conninfo

from sql import statement
from sql.connect import Connection, connect
from tests.sql.calls import beat, call, leave, register
from tests.support.database import Database, role_of_its_own
from tests.support.faults import frozen


def enter(database: Database, *threads: str) -> tuple[UUID, list[Connection]]:
    """Register a dispatcher with a session of each of these names; the first holds its lock."""
    dispatcher = register(database.connect())
    sessions = [database.connect(f"tally:{dispatcher}:{thread}") for thread in threads]
    sessions[0].execute(statement("queries/lock_dispatcher"), {"dispatcher": dispatcher})
    return dispatcher, sessions


def end_sessions(judge: Connection, *suspects: tuple[UUID, int]) -> set[UUID]:
    """End them, and return the dispatchers that have none left."""
    rows = call(judge, "end_sessions", dispatchers=[each for each, _ in suspects], beats=[each for _, each in suspects])
    return {dispatcher for (dispatcher,) in rows}


def lives(database: Database, session: Connection) -> bool:
    there = "select count(*) from pg_stat_activity where pid = %s"
    return bool(database.value(there, (session.info.backend_pid,)))


def test_all_sessions_of_the_suspects_are_ended_and_nobody_elses(database: Database) -> None:
    judge = database.connect("tally:judge:recovery")
    first, firsts = enter(database, "session", "loop", "outcomes")
    second, seconds = enter(database, "session")
    living, others = enter(database, "session", "loop")
    stranger = database.connect("test")

    assert end_sessions(judge, (first, 0), (second, 0)) == {first, second}

    assert not any(lives(database, session) for session in (*firsts, *seconds))
    assert all(lives(database, session) for session in (*others, stranger))
    (lock,) = (row[-1] for row in call(judge, "living_dispatchers", dispatcher=first) if row[0] == living)
    assert lock is True
    assert [row[-1] for row in call(judge, "living_dispatchers", dispatcher=living)] == [False, False]


def test_the_sessions_of_one_that_beat_since_it_was_watched_or_has_left_are_left_alone(database: Database) -> None:
    judge = database.connect()
    beating, (session, *_) = enter(database, "session")
    left, (other, *_) = enter(database, "session")
    beat(session, beating)
    leave(other, left)

    assert end_sessions(judge, (beating, 0), (left, 0)) == set()

    assert lives(database, session)
    assert lives(database, other)


def test_one_without_sessions_has_none_left(database: Database) -> None:
    judge = database.connect()
    dispatcher = register(judge)

    assert end_sessions(judge, (dispatcher, 0)) == {dispatcher}
    assert end_sessions(judge) == set()


def test_a_session_whose_server_process_is_frozen_is_not_waited_for_long_and_keeps_no_other(database: Database) -> None:
    judge = database.connect()
    stubborn, (session, *_) = enter(database, "session")
    plain, (other, *_) = enter(database, "session")
    began = monotonic()
    with frozen(session.info.backend_pid):
        assert end_sessions(judge, (stubborn, 0), (plain, 0)) == {plain}
        assert monotonic() - began < 2

    assert not lives(database, other)
    assert end_sessions(judge, (stubborn, 0)) == {stubborn}


def test_a_lock_held_by_a_session_of_another_name_is_told(database: Database) -> None:
    judge = database.connect()
    dispatcher, (holder, *_) = enter(database, "session")
    holder.execute("set application_name = 'something else'")

    assert end_sessions(judge, (dispatcher, 0)) == set()

    assert lives(database, holder)


def test_a_role_that_may_end_no_session_is_told_so_and_nothing_is_raised(database: Database) -> None:
    with role_of_its_own(database) as role:
        patience = timedelta(seconds=10)
        url = make_conninfo(database.url, user=role)
        judge = connect(url, name="judge", connect_timeout=patience, statement_timeout=patience)
        dispatcher = register(database.connect())
        named = f"tally:{dispatcher}:session"
        session = connect(url, name=named, connect_timeout=patience, statement_timeout=patience)
        with judge, session:
            database.execute("revoke execute on function pg_terminate_backend from public")

            assert end_sessions(judge, (dispatcher, 0)) == set()

            assert lives(database, session)
            database.execute("grant execute on function pg_terminate_backend to public")
            assert end_sessions(judge, (dispatcher, 0)) == {dispatcher}

"""condemn_dispatcher and recover_tasks: what becomes of the tasks of a dispatcher that is no more."""

from uuid import uuid4

import pytest
from psycopg import errors

from sql.connect import Connection
from sql.errors import BeatMoved, NotFound, translated
from tests.sql.calls import (
    beat,
    call,
    cancel,
    claim,
    condemn,
    document,
    finish,
    leave,
    publish,
    recover,
    register,
    starts_waiting,
    submit_all,
    submit_one,
    succeeded,
)
from tests.support.database import Database

REASONS = {
    "exited": "process exited before worker completion",
    "lost": "dispatcher lost before worker completion",
}


@pytest.mark.parametrize("why", ["exited", "lost"])
def test_what_it_held_fails_with_the_reason_and_the_proof(database: Database, why: str) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher, 3)
    since = document(connection, task)["started_at"]
    beat(connection, dispatcher)
    ((started, beaten),) = database.rows(
        "select tally.utc_text(started_at), tally.utc_text(beaten_at) from tally.dispatcher"
    )

    assert condemn(connection, dispatcher, 1, why=why, proof="(a) nobody answers by its name; judged by me") == {
        task: "FAILED"
    }

    assert document(connection, task)["error"] == {
        "reason": REASONS[why],
        "detail": f"held by dispatcher {dispatcher} since {since} (claim 3, attempt 1): "
        f"process 4711 on thishost, started {started}, last beat 1 at {beaten}; "
        "(a) nobody answers by its name; judged by me",
    }
    look = "select stopped_why, stopped_proof, stopped_at is not null from tally.dispatcher"
    assert database.rows(look) == [(why, "(a) nobody answers by its name; judged by me", True)]


def test_a_task_whose_cancel_was_accepted_ends_canceled_and_tells_the_reason(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    cancel(connection, task)

    assert condemn(connection, dispatcher) == {task: "CANCELED"}

    error = document(connection, task)["error"]
    assert error["reason"] == "canceled"
    assert error["detail"].startswith("process exited before worker completion; held by dispatcher")


def test_ended_queued_and_others_tasks_are_left_alone(database: Database) -> None:
    connection = database.connect()
    dispatcher, other = register(connection), register(connection)
    held, ended, foreign, _ = submit_all(connection, 4)
    claim(connection, dispatcher, free=2)
    claim(connection, other, free=1)
    finish(connection, dispatcher, succeeded(ended))

    assert condemn(connection, dispatcher) == {held: "FAILED"}
    assert [state for (state,) in database.rows("select state from tally.task order by id")] == [
        "FAILED",
        "SUCCEEDED",
        "RUNNING",
        "QUEUED",
    ]
    assert document(connection, foreign)["error"] is None


def test_a_dispatcher_that_beat_since_it_was_watched_is_not_condemned(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    beat(connection, dispatcher)

    with pytest.raises(BeatMoved), translated():
        condemn(connection, dispatcher, 0)

    assert document(connection, task)["state"] == "RUNNING"
    assert database.value("select stopped_at from tally.dispatcher") is None


def test_a_condemnation_that_waits_behind_a_beat_is_refused(database: Database) -> None:
    dispatcher_session = database.connect()
    dispatcher = register(dispatcher_session)

    def judge(connection: Connection) -> dict[int, str]:
        with translated():
            return condemn(connection, dispatcher, 0)

    with dispatcher_session.transaction():
        beat(dispatcher_session, dispatcher)
        late = starts_waiting(database, judge)

    assert isinstance(late.exception(timeout=10), BeatMoved)


def test_a_condemnation_waits_for_a_claim_in_flight_and_then_fails_its_rows(database: Database) -> None:
    claimer = database.connect()
    dispatcher = register(claimer)
    tasks = submit_all(claimer, 3)

    with claimer.transaction():
        claim(claimer, dispatcher)
        judge = starts_waiting(database, lambda connection: condemn(connection, dispatcher))

    assert judge.result(timeout=10) == dict.fromkeys(tasks, "FAILED")


def test_rows_found_locked_are_skipped_and_a_later_look_recovers_them(database: Database) -> None:
    judge, holder = database.connect(), database.connect()
    dispatcher = register(judge)
    first, second = submit_all(judge, 2)
    claim(judge, dispatcher)

    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (first,))
        assert condemn(judge, dispatcher, why="lost") == {second: "FAILED"}
        assert recover(judge, dispatcher) == {}

    assert call(judge, "stopped_holders") == [(dispatcher,)]
    assert recover(judge, dispatcher) == {first: "FAILED"}
    assert call(judge, "stopped_holders") == []
    assert document(judge, first)["error"]["reason"] == "dispatcher lost before worker completion"


def test_a_finish_under_way_wins_over_the_condemnation(database: Database) -> None:
    judge, finisher = database.connect(), database.connect()
    dispatcher = register(judge)
    task = submit_one(judge)
    claim(judge, dispatcher)

    with finisher.transaction():
        assert finish(finisher, dispatcher, succeeded(task)) == {task: "written"}
        assert condemn(judge, dispatcher) == {}

    assert recover(judge, dispatcher) == {}
    assert document(judge, task)["state"] == "SUCCEEDED"


def test_the_first_of_two_judges_gives_the_reason(database: Database) -> None:
    first, second = database.connect(), database.connect()
    dispatcher = register(first)
    task = submit_one(first)
    claim(first, dispatcher)

    with first.transaction():
        assert condemn(first, dispatcher, why="exited", proof="first") == {task: "FAILED"}
        rival = starts_waiting(database, lambda connection: condemn(connection, dispatcher, why="lost", proof="second"))

    assert rival.result(timeout=10) == {}
    assert database.rows("select stopped_why, stopped_proof from tally.dispatcher") == [("exited", "first")]
    assert condemn(second, dispatcher, 99, why="lost", proof="second") == {}


def test_an_unknown_dispatcher_cannot_be_condemned(database: Database) -> None:
    with pytest.raises(NotFound), translated():
        condemn(database.connect(), uuid4())


def test_a_judge_cannot_say_that_another_left(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)

    with pytest.raises(errors.CheckViolation):
        condemn(connection, dispatcher, why="left")


def test_a_living_dispatchers_tasks_are_not_recovered(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    submit_one(connection)
    claim(connection, dispatcher)

    assert recover(connection, dispatcher) == {}
    assert call(connection, "stopped_holders") == []


def test_tasks_of_a_dispatcher_without_a_row_are_recovered_as_lost(database: Database) -> None:
    connection = database.connect()
    dispatcher, judge = register(connection), uuid4()
    task = submit_one(connection)
    claim(connection, dispatcher)
    since = document(connection, task)["started_at"]
    database.execute("delete from tally.dispatcher")

    assert call(connection, "stopped_holders") == [(dispatcher,)]
    assert recover(connection, dispatcher, judge=judge) == {task: "FAILED"}
    assert document(connection, task)["error"] == {
        "reason": REASONS["lost"],
        "detail": f"held by dispatcher {dispatcher} since {since} (claim 1, attempt 1): "
        f"the database knows nothing of it; judged by dispatcher {judge}",
    }


def test_tasks_found_under_a_dispatcher_that_had_left_are_recovered_as_lost(database: Database) -> None:
    connection = database.connect()
    dispatcher, judge = register(connection), uuid4()
    beat(connection, dispatcher)
    task = submit_one(connection)
    leave(connection, dispatcher)
    database.execute(
        "update tally.task set state = 'RUNNING', attempt = 1, claimed_by = %s, claim_number = 1, started_at = now()",
        (dispatcher,),
    )
    since = document(connection, task)["started_at"]

    assert recover(connection, dispatcher, judge=judge) == {task: "FAILED"}
    error = document(connection, task)["error"]
    assert error["reason"] == REASONS["lost"]
    assert error["detail"].startswith(
        f"held by dispatcher {dispatcher} since {since} (claim 1, attempt 1): process 4711 on thishost, started "
    )
    assert ", last beat 1 at " in error["detail"]
    assert error["detail"].endswith(f"; it had left; judged by dispatcher {judge}")


def test_rows_that_one_judge_found_locked_name_the_judge_that_condemned(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    condemn(connection, dispatcher, proof="(b) silence; judged by the first", only=[])

    assert recover(connection, dispatcher, judge=uuid4()) == {task: "FAILED"}
    assert document(connection, task)["error"]["detail"].endswith("; (b) silence; judged by the first")


def test_the_calls_of_the_version_before_are_still_there(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    condemn(connection, dispatcher, only=[])

    rows = connection.execute("select id, state from tally.recover_tasks(%s, %s)", (dispatcher, [task])).fetchall()
    assert rows == [(task, "FAILED")]
    assert connection.execute("select * from tally.recover_tasks(%s)", (dispatcher,)).fetchall() == []
    assert connection.execute("select tally.end_backends('tally:nobody:')").fetchall() == [(0,)]


def test_a_condemnation_that_finds_the_dispatcher_locked_does_not_wait_long(database: Database) -> None:
    judge, holder = database.connect(), database.connect()
    dispatcher = register(judge)

    with holder.transaction():
        holder.execute("select from tally.dispatcher for update")
        with pytest.raises(errors.LockNotAvailable):
            condemn(judge, dispatcher)

    assert condemn(judge, dispatcher) == {}
    assert database.value("select stopped_why from tally.dispatcher") == "exited"


def test_leftover_sessions_of_a_dispatcher_are_ended_and_no_others(database: Database) -> None:
    judge = database.connect("tally-judge")
    dead, alive = database.connect("tally-dead-session"), database.connect("tally-alive-session")
    dead.execute("begin")
    dead.execute("select pg_advisory_lock(1)")

    assert call(judge, "end_backends", prefix="tally-dead") == [(1,)]

    assert judge.execute("select pg_try_advisory_lock(1)").fetchone() == (True,)
    alive.execute("select 1")
    assert call(judge, "end_backends", prefix="tally-judge") == [(0,)]


def test_a_row_that_cannot_be_written_does_not_keep_the_others(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    bad, first, second = submit_all(connection, 3)
    claim(connection, dispatcher)
    database.execute("create function refuse() returns trigger language plpgsql as $$begin raise 'not this one'; end$$")
    database.execute(
        f"create trigger refuse before update on tally.task for each row when (old.id = {bad}) "
        "execute function refuse()"
    )

    with pytest.raises(errors.RaiseException):
        condemn(connection, dispatcher)
    assert condemn(connection, dispatcher, only=[]) == {}
    assert recover(connection, dispatcher, only=[second]) == {second: "FAILED"}
    assert recover(connection, dispatcher, only=[first, 404]) == {first: "FAILED"}

    assert call(connection, "stopped_holders") == [(dispatcher,)]
    assert document(connection, bad)["state"] == "RUNNING"


def test_a_kind_that_is_to_run_again_after_a_crash_does_while_an_attempt_is_left(database: Database) -> None:
    connection = database.connect()
    publish(connection, on_crash="retry", max_attempts=2)
    dispatcher, other = register(connection), register(connection)
    task, last, canceled = submit_all(connection, 3)
    claim(connection, dispatcher)
    database.execute("update tally.task set attempt = 2 where id = %s", (last,))
    cancel(connection, canceled)

    assert condemn(connection, dispatcher) == {task: "QUEUED", last: "FAILED", canceled: "CANCELED"}

    seen = document(connection, task)
    assert (seen["state"], seen["attempt"], seen["started_at"]) == ("QUEUED", 1, None)
    assert seen["due_at"] is not None
    (kept,) = seen["attempts"]
    assert kept["error"]["reason"] == REASONS["exited"]
    assert kept["error"]["detail"].startswith(f"held by dispatcher {dispatcher} since {kept['started_at']} (claim 1, ")
    assert call(connection, "stopped_holders") == []
    assert claim(connection, other) == []
    assert [each["attempt"] for each in document(connection, last)["attempts"]] == [2]


def test_a_finish_of_the_attempt_that_was_recovered_is_late(database: Database) -> None:
    connection = database.connect()
    publish(connection, on_crash="retry", backoff_first_seconds=0)
    dispatcher, other = register(connection), register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    assert condemn(connection, dispatcher) == {task: "QUEUED"}

    assert [(row.id, row.attempt) for row in claim(connection, other)] == [(task, 2)]
    assert finish(connection, dispatcher, succeeded(task)) == {task: "late"}
    assert document(connection, task)["state"] == "RUNNING"


def test_a_kind_that_is_not_to_run_again_after_a_crash_does_not_however_many_attempts_are_left(
    database: Database,
) -> None:
    connection = database.connect()
    publish(connection, on_crash="fail", max_attempts=100)
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    assert condemn(connection, dispatcher) == {task: "FAILED"}


def test_what_one_judge_gave_another_attempt_a_second_one_does_not_find(database: Database) -> None:
    first, second = database.connect(), database.connect()
    publish(first, on_crash="retry")
    dispatcher = register(first)
    task = submit_one(first)
    claim(first, dispatcher)
    condemn(first, dispatcher, only=[])

    with first.transaction():
        assert recover(first, dispatcher) == {task: "QUEUED"}
        assert recover(second, dispatcher) == {}

    assert recover(second, dispatcher) == {}
    assert len(document(first, task)["attempts"]) == 1

"""A judge at work on a real database: whom it condemns, whom it leaves alone, and what becomes of their tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import make_conninfo

from dispatcher.presence import HAS_PROOF, Place, here, hold_name
from dispatcher.recovery import Recovery
from dispatcher.sessions import Database as Reached
from dispatcher.watch import Watch
from sql import statement
from sql.connect import Connection
from tests.dispatcher.given import a_caller, allow_writes, claimed, refuse_writes, registered, running, state, terminate
from tests.sql import calls
from tests.support.database import Database, role_of_its_own
from tests.support.faults import frozen
from tests.support.waiting import wait_until

ELSEWHERE = Place("another boot", "another namespace")


class Judge:
    """A recovery on a thread."""

    def __init__(
        self,
        database: Database,
        *,
        grace: float = 60,
        stall: float = 600,
        beat: float = 1.0,
        statement_seconds: float = 2.0,
        url: str = "",
    ) -> None:
        self.database = database
        self.attending_since: float | None = 0.0
        self.reached: Reached = registered(database, statement_seconds=statement_seconds, url=url)
        watch = Watch(here(), *(timedelta(seconds=seconds) for seconds in (grace, stall, beat)))
        caller = a_caller(database, self.reached, "recovery")
        self.recovery = Recovery(
            caller,
            watch,
            timedelta(seconds=0.025),
            may_judge=lambda: True,
            attending_since=lambda: self.attending_since,
        )

    @contextmanager
    def works(self) -> Iterator[None]:
        with running(self.recovery.run, stop=self.recovery.stop.set):
            yield

    def has_looked_again(self) -> None:
        """Wait until at least two looks were made: each new dead dispatcher here takes one."""
        for _ in range(2):
            await_stop(self.database, suspect(self.database))


def suspect(database: Database, place: Place | None = None) -> UUID:
    """Enter a dispatcher of which no process is left, by default one of this place."""
    dispatcher = uuid4()
    place = place or here()
    calls.call(
        database.connect(),
        "register_dispatcher",
        dispatcher=dispatcher,
        host="thathost",
        boot_id=place.boot_id,
        network_namespace=place.network_namespace,
        pid=4711,
        slots=8,
        queue="default",
    )
    return dispatcher


def stopped_why(database: Database, dispatcher: UUID) -> str | None:
    why: str | None = database.value("select stopped_why from tally.dispatcher where id = %s", (dispatcher,))
    return why


def await_stop(database: Database, dispatcher: UUID) -> str:
    return str(wait_until(lambda: stopped_why(database, dispatcher), "the dispatcher is condemned"))


def await_end(database: Database, task: int) -> dict[str, str]:
    """Wait until a task is open no more; return its error."""
    wait_until(lambda: state(database, task) not in ("QUEUED", "RUNNING"), f"task {task} has ended")
    error: dict[str, str] = database.value("select error from tally.task where id = %s", (task,))
    return error


needs_names = pytest.mark.skipif(not HAS_PROOF, reason="this system has no abstract socket names")


@needs_names
def test_tasks_of_a_process_that_is_gone_from_this_machine_fail_at_once(database: Database) -> None:
    dead = suspect(database)
    tasks = claimed(database, dead, 3)
    judge = Judge(database)
    with judge.works():
        errors = [await_end(database, task) for task in tasks]

    assert {error["reason"] for error in errors} == {"process exited before worker completion"}
    assert "process 4711 on thathost" in errors[0]["detail"]
    assert f"judged by dispatcher {judge.reached.dispatcher}" in errors[0]["detail"]
    assert stopped_why(database, dead) == "exited"
    assert stopped_why(database, judge.reached.dispatcher) is None


@needs_names
def test_nobody_is_condemned_while_its_name_is_held(database: Database) -> None:
    living = suspect(database)
    (task,) = claimed(database, living, 1)
    name = hold_name(living)
    assert name is not None
    judge = Judge(database)
    with name, judge.works():
        judge.has_looked_again()
        assert (stopped_why(database, living), state(database, task)) == (None, "RUNNING")

        name.close()

        assert await_stop(database, living) == "exited"
        await_end(database, task)


def test_nobody_is_condemned_while_its_lock_is_held(database: Database) -> None:
    living = suspect(database)
    (task,) = claimed(database, living, 1)
    session = database.connect()
    session.execute(statement("queries/lock_dispatcher"), {"dispatcher": living})
    judge = Judge(database, grace=0.1)
    with judge.works():
        judge.has_looked_again()
        assert (stopped_why(database, living), state(database, task)) == (None, "RUNNING")

        session.close()

        await_stop(database, living)


def silent_session(database: Database) -> tuple[UUID, Connection]:
    """Enter a dispatcher that beats no more though its session is there, with its lock; return it and the session."""
    dispatcher = suspect(database, ELSEWHERE)
    session = database.connect(f"tally:{dispatcher}:session")
    session.execute(statement("queries/lock_dispatcher"), {"dispatcher": dispatcher})
    return dispatcher, session


def test_one_that_holds_its_lock_and_beats_no_more_is_lost_after_the_stall_limit(database: Database) -> None:
    silent, _ = silent_session(database)
    (task,) = claimed(database, silent, 1)
    judge = Judge(database, grace=0.1, stall=0.5)
    with judge.works():
        error = await_end(database, task)

    assert error["reason"] == "dispatcher lost before worker completion"
    assert "; (c) frozen or cut off: its lock was held, but its beat was seen unchanged for 0.5" in error["detail"]
    assert error["detail"].endswith(f"its sessions were ended first; judged by dispatcher {judge.reached.dispatcher}")
    named = "select count(*) from pg_stat_activity where starts_with(application_name, %s)"
    assert database.value(named, (f"tally:{silent}:",)) == 0


def test_one_that_holds_its_lock_and_beats_is_never_lost(database: Database) -> None:
    living, session = silent_session(database)
    with Judge(database, grace=0.1, stall=0.5).works():
        silent, _ = silent_session(database)

        def beats_until_the_other_is_lost() -> str | None:
            calls.beat(session, living)
            return stopped_why(database, silent)

        wait_until(beats_until_the_other_is_lost, "the silent one is lost")
        assert stopped_why(database, living) is None
        assert session.execute("select 1").fetchone() == (1,), "its session is there"


def test_one_whose_server_process_is_frozen_is_not_condemned_before_that_is_gone_and_delays_no_other(
    database: Database,
) -> None:
    stubborn, session = silent_session(database)
    with Judge(database, grace=0.3, stall=0.3).works():
        with frozen(session.info.backend_pid):
            for _ in range(2):
                await_stop(database, silent_session(database)[0])
                await_stop(database, suspect(database, ELSEWHERE))
            assert stopped_why(database, stubborn) is None

        assert await_stop(database, stubborn) == "lost"


def test_a_judge_that_may_end_no_session_condemns_whoever_has_none(database: Database) -> None:
    with role_of_its_own(database) as role:
        url = make_conninfo(database.url, user=role)
        database.execute("revoke execute on function pg_terminate_backend from public")
        silent, session = silent_session(database)
        judge = Judge(database, grace=0.3, stall=0.3, url=url)
        with judge.works():
            for _ in range(2):
                await_stop(database, suspect(database, ELSEWHERE))
                # Its lock is held by another role's session, which nobody of this role may end.
                assert stopped_why(database, silent) is None

            session.close()

            assert await_stop(database, silent) == "lost"


def test_one_whose_row_somebody_holds_is_come_back_to_and_delays_no_other(database: Database) -> None:
    stubborn = suspect(database, ELSEWHERE)
    holder = database.connect()
    with Judge(database, grace=1.2).works():
        with holder.transaction():
            holder.execute("select from tally.dispatcher where id = %s for update", (stubborn,))
            for _ in range(2):
                await_stop(database, suspect(database, ELSEWHERE))
            assert stopped_why(database, stubborn) is None

        assert await_stop(database, stubborn) == "lost"


def test_one_from_elsewhere_is_lost_after_the_grace_period(database: Database) -> None:
    away = suspect(database, ELSEWHERE)
    (task,) = claimed(database, away, 1)
    with Judge(database, grace=0.3).works():
        error = await_end(database, task)

    assert stopped_why(database, away) == "lost"
    assert error["reason"] == "dispatcher lost before worker completion"
    assert "its beat was seen unchanged" in error["detail"]


def test_one_from_elsewhere_that_beats_is_not_lost(database: Database) -> None:
    living = suspect(database, ELSEWHERE)
    connection = database.connect()
    with Judge(database, grace=0.5).works():
        silent = suspect(database, ELSEWHERE)

        def beats_until_the_other_is_lost() -> str | None:
            calls.beat(connection, living)
            return stopped_why(database, silent)

        wait_until(beats_until_the_other_is_lost, "the silent one is lost")
        assert stopped_why(database, living) is None

        assert await_stop(database, living) == "lost"


def test_a_judge_whose_session_broke_goes_on(database: Database) -> None:
    judge = Judge(database, grace=0.3)
    with judge.works():
        for _ in range(2):
            wait_until(lambda: terminate(database, judge.reached.name("recovery")) == 1, "the judge's session is ended")
        away = suspect(database, ELSEWHERE)

        assert await_stop(database, away) == "lost"


@needs_names
def test_rows_that_somebody_holds_are_come_back_to(database: Database) -> None:
    dead = suspect(database)
    held, free = claimed(database, dead, 2)
    holder = database.connect()
    judge = Judge(database)
    with judge.works():
        with holder.transaction():
            holder.execute("select from tally.task where id = %s for update", (held,))
            await_end(database, free)
            judge.has_looked_again()
            assert state(database, held) == "RUNNING"

        assert await_end(database, held)["reason"] == "process exited before worker completion"


@needs_names
def test_what_a_dead_process_left_on_the_server_is_ended_first(database: Database) -> None:
    dead = suspect(database)
    (task,) = claimed(database, dead, 1)
    leftover = database.connect(f"tally:{dead}:outcomes")
    leftover.execute("begin")
    leftover.execute("update tally.task set input = input where id = %s", (task,))
    with Judge(database).works():
        await_end(database, task)

    assert (
        database.value(
            "select count(*) from pg_stat_activity where starts_with(application_name, %s)", (f"tally:{dead}",)
        )
        == 0
    )


@needs_names
def test_a_task_whose_cancel_was_accepted_ends_canceled_and_says_why(database: Database) -> None:
    dead = suspect(database)
    (task,) = claimed(database, dead, 1)
    calls.cancel(database.connect(), task)
    with Judge(database).works():
        error = await_end(database, task)

    assert state(database, task) == "CANCELED"
    assert error["reason"] == "canceled"
    assert error["detail"].startswith("process exited before worker completion; ")


def test_rows_of_a_holder_that_nobody_knows_are_recovered(database: Database) -> None:
    unknown = suspect(database)
    (task,) = claimed(database, unknown, 1)
    database.execute("delete from tally.dispatcher where id = %s", (unknown,))
    with Judge(database).works():
        error = await_end(database, task)

    assert error["reason"] == "dispatcher lost before worker completion"


@needs_names
def test_an_error_about_one_dispatchers_rows_does_not_keep_the_others_waiting(database: Database) -> None:
    first, second = suspect(database), suspect(database)
    (stubborn,) = claimed(database, first, 1)
    (plain,) = claimed(database, second, 1)
    refuse_writes(database, f"old.id = {stubborn}")
    judge = Judge(database)
    with judge.works():
        await_end(database, plain)
        judge.has_looked_again()
        assert state(database, stubborn) == "RUNNING"

        allow_writes(database)

        await_end(database, stubborn)


@needs_names
def test_the_same_where_the_holder_is_stopped_already(database: Database) -> None:
    first, second = suspect(database), suspect(database)
    (stubborn,) = claimed(database, first, 1)
    (plain,) = claimed(database, second, 1)
    database.execute(
        "update tally.dispatcher set stopped_at = now(), stopped_why = 'exited', stopped_proof = 'gone' "
        "where id = any (%s)",
        ([first, second],),
    )
    refuse_writes(database, f"old.id = {stubborn}")
    with Judge(database).works():
        await_end(database, plain)

        allow_writes(database)

        await_end(database, stubborn)


def test_rows_that_run_out_of_time_at_every_look_do_not_blind_the_watch(database: Database) -> None:
    stuck = suspect(database)
    (row,) = claimed(database, stuck, 1)
    database.execute("update tally.dispatcher set stopped_at = now(), stopped_why = 'exited', stopped_proof = 'gone'")
    refuse_writes(database, f"old.id = {row}", "perform pg_sleep(10)")
    away = suspect(database, ELSEWHERE)
    # Each look at the stuck row takes longer than two beats.
    with Judge(database, grace=0.4, beat=0.2, statement_seconds=0.5).works():
        assert await_stop(database, away) == "lost"


@needs_names
def test_two_judges_do_not_get_in_each_others_way(database: Database) -> None:
    dead = [suspect(database) for _ in range(5)]
    tasks = [claimed(database, each, 2) for each in dead]
    first, second = Judge(database), Judge(database)
    with first.works(), second.works():
        errors = [await_end(database, task) for both in tasks for task in both]

    assert {error["reason"] for error in errors} == {"process exited before worker completion"}
    assert (stopped_why(database, first.reached.dispatcher), stopped_why(database, second.reached.dispatcher)) == (
        None,
        None,
    )


@needs_names
@pytest.mark.parametrize("action", ["raise exception 'no'", "perform pg_sleep(1)"])
def test_a_row_that_cannot_be_written_keeps_no_other_row_of_its_holder_waiting(database: Database, action: str) -> None:
    holder = suspect(database)
    stubborn, plain = claimed(database, holder, 2)
    refuse_writes(database, f"old.id = {stubborn}", action)
    with Judge(database, statement_seconds=0.3).works():
        assert await_end(database, plain)["reason"] == "process exited before worker completion"
        assert stopped_why(database, holder) == "exited"
        assert state(database, stubborn) == "RUNNING"

        allow_writes(database)

        await_end(database, stubborn)

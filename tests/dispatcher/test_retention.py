"""The retention at work on a real database: what it removes, what it passes over, and what it survives."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest

from dispatcher.retention import Retention, Walk
from dispatcher.threats import Threat, Threats
from sql import statement
from tests.dispatcher.given import Clock, a_caller, reach, running, terminate
from tests.sql import calls
from tests.sql.test_readiness import invent_a_threat
from tests.sql.test_remove_tasks import OLD, ended, left, protect
from tests.support.database import Database, holding
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.waiting import wait_until

KEEP = timedelta(days=7)


class Keeper:
    """A retention on a thread."""

    def __init__(
        self,
        database: Database,
        keep: timedelta | None = KEEP,
        *,
        batch: int = 4,
        look_seconds: float = 0.02,
        statement_seconds: float = 2.0,
    ) -> None:
        self.database = database
        self.reached = reach(database, statement_seconds=statement_seconds)
        caller = a_caller(database, self.reached, "retention")
        self.retention = Retention(caller, keep, look_seconds=look_seconds, batch=batch)

    @contextmanager
    def works(self) -> Iterator[None]:
        with running(self.retention.run, stop=self.retention.stop.set):
            yield

    def has_looked_again(self) -> None:
        """Wait until it has looked a few times more."""
        last_call = "select query_start from pg_stat_activity where application_name = %s"
        seen = set()

        def looked() -> bool:
            seen.add(self.database.value(last_call, (self.reached.name("retention"),)))
            return len(seen) > 5

        wait_until(looked, "it looks")

    def pids(self) -> list[int]:
        """Return the process ids of its sessions, those that hold the lock."""
        return [
            pid
            for (pid,) in self.database.rows(
                "select pid from pg_stat_activity join pg_locks using (pid)"
                " where application_name = %s and locktype = 'advisory'",
                (self.reached.name("retention"),),
            )
        ]


def await_left(database: Database, tasks: list[int]) -> None:
    wait_until(lambda: left(database) == tasks, f"only {tasks} are left", seen=lambda: left(database))


def test_what_is_old_is_removed_by_batches(database: Database) -> None:
    ended(database, 11)
    statements = "select calls from pg_stat_user_functions where funcname = 'remove_tasks'"
    database.execute(f"alter database {database.name} set track_functions = 'all'")

    with Keeper(database).works():
        await_left(database, [])
        wait_until(lambda: (database.value(statements) or 0) >= 3, "there were three batches")


def test_open_and_young_tasks_stay(database: Database) -> None:
    connection = database.connect()
    ended(database, 9)
    database.execute("update tally.task set finished_at = clock_timestamp() where id = 3")
    calls.submit_all(connection, 3)
    calls.claim(connection, calls.register(connection), free=1)
    database.execute(f"update tally.task set created_at = {OLD}")

    keeper = Keeper(database)
    with keeper.works():
        await_left(database, [3, 10, 11, 12])
        keeper.has_looked_again()
        assert left(database) == [3, 10, 11, 12]


def test_a_locked_row_is_skipped_and_found_later(database: Database) -> None:
    tasks = ended(database, 6)
    with ExitStack() as ending:
        held = ending.enter_context(ExitStack())
        held.enter_context(holding(database, f"select from tally.task where id = {tasks[2]} for update"))
        ending.enter_context(Keeper(database).works())
        await_left(database, [tasks[2]])

        held.close()

        await_left(database, [])


@pytest.mark.parametrize(
    "action",
    [
        "raise exception 'kept for the auditors'",
        pytest.param("perform pg_sleep(60)", marks=pytest.mark.long),
        "return null",
    ],
)
def test_a_row_that_a_trigger_protects_does_not_stop_the_others(database: Database, action: str) -> None:
    tasks = ended(database, 9)
    protect(database, [tasks[1]], action)

    with Keeper(database, statement_seconds=0.3).works():
        await_left(database, [tasks[1]])
        database.execute("drop trigger protect on tally.task")
        await_left(database, [])


def test_a_row_that_is_refused_at_the_commit_does_not_stop_the_others(database: Database) -> None:
    tasks = ended(database, 9)
    database.execute(
        f"""
        create table reminder (task bigint references tally.task deferrable initially deferred);
        insert into reminder values ({tasks[1]});
        """
    )

    with Keeper(database).works():
        await_left(database, [tasks[1]])


def test_what_is_kept_for_ever_is_never_removed(database: Database) -> None:
    tasks = ended(database, 3)
    keeper = Keeper(database, None)

    with keeper.works():
        keeper.has_looked_again()

        assert left(database) == tasks


def test_two_dispatchers_do_not_remove_at_once(database: Database) -> None:
    first, second = Keeper(database), Keeper(database)

    with first.works():
        wait_until(first.pids, "the first has the lock")
        with second.works():
            ended(database, 9)
            await_left(database, [])
            assert second.pids() == []

            first.retention.stop.set()

            wait_until(second.pids, "the second has the lock once the first has ended")
            ended(database, 3)
            await_left(database, [])


def test_it_goes_on_after_its_session_was_ended(database: Database) -> None:
    keeper = Keeper(database)
    with keeper.works():
        (pid,) = wait_until(keeper.pids, "it has the lock")

        terminate(database, keeper.reached.name("retention"))

        wait_until(lambda: keeper.pids() not in ([], [pid]), "it has the lock again")
        ended(database, 3)
        await_left(database, [])


def test_failures_are_logged_ever_more_seldom_and_end_nothing(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = ended(database, 3)
    database.execute("alter function tally.remove_tasks rename to moved")

    with Keeper(database, look_seconds=0.005).works():
        wait_until(lambda: "times=32" in caplog.text, "it has failed many times")
        assert left(database) == tasks
        database.execute("alter function tally.moved rename to remove_tasks")
        await_left(database, [])

    failed = [record for record in caplog.records if record.getMessage().startswith("retention.failed")]
    assert len(failed) < 12


def test_a_removal_that_fails_keeps_nobody_from_being_told_of(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("alter function tally.remove_dispatchers rename to moved")
    invent_a_threat(database)

    with Keeper(database).works():
        wait_until(lambda: "queue.threatened holds=notifications pid=7 name='seven'" in caplog.text, "it is told")

    assert "retention.failed" in caplog.text


def test_dispatchers_that_stopped_long_ago_are_removed(database: Database) -> None:
    dispatcher = calls.register(database.connect())
    database.execute(f"update tally.dispatcher set stopped_why = 'left', stopped_at = {OLD}")

    with Keeper(database).works():
        wait_until(lambda: not database.rows("select from tally.dispatcher where id = %s", (dispatcher,)), "it is gone")


def test_a_walk_steps_by_halves_where_it_fails_and_over_the_one_row_that_fails_alone() -> None:
    walk = Walk(4)
    walk.failed(4, is_over=False)
    walk.failed(2, is_over=False)
    assert (walk.after, walk.limit) == (0, 1)

    walk.failed(1, is_over=False)
    assert (walk.after, walk.limit) == (1, 1)

    walk.went(2, is_over=False)
    walk.went(4, is_over=False)
    walk.went(8, is_over=True)
    assert (walk.after, walk.limit, walk.is_over) == (8, 4, True)


def test_it_rests_nine_times_as_long_as_it_worked() -> None:
    walk = Walk(4)

    assert walk.rest_seconds(0.25) == 2.25
    walk.is_over = True
    assert walk.rest_seconds(0.75) == 9.0


def test_who_holds_a_snapshot_is_told_once_and_when_it_is_over(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    # Nobody waits a minute here.
    monkeypatch.setattr("dispatcher.sessions.statement", lambda name: statement(name).replace("'1 minute'", "'0'"))
    keeper = Keeper(database, None)

    with keeper.works():
        with holding(database, "set transaction isolation level repeatable read", "select 7 as seven") as pid:
            wait_until(lambda: "queue.threatened" in caplog.text, "it is told")
            keeper.has_looked_again()
        wait_until(lambda: f"queue.relieved holds=snapshot pid={pid}" in caplog.text, "it is over")

    begun, over = (line for line in caplog.messages if f" pid={pid} " in line)
    assert begun.startswith(f"queue.threatened holds=snapshot pid={pid} name='holder' user=postgres ")
    assert "query='select 7 as seven'" in begun
    assert over.startswith(f"queue.relieved holds=snapshot pid={pid} ")


def a_threat(pid: int = 4711, holds: str = "snapshot") -> Threat:
    since, query = "2026-01-31T12:00:00.000000Z", "select 1"
    return Threat(holds, pid, "psql", "anna", "tally", since, "idle in transaction", 7, query)


def test_a_threat_is_told_once_then_ever_more_seldom_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    threats = Threats(clock)

    def told(found: list[Threat], after: float = 10.0) -> list[str]:
        clock.now += after
        caplog.clear()
        threats.tell(found)
        return [record.getMessage() for record in caplog.records]

    (line,) = told([a_threat()])
    assert line == (
        "queue.threatened holds=snapshot pid=4711 name='psql' user=anna database=tally "
        "since=2026-01-31T12:00:00.000000Z state='idle in transaction' transactions=7 query='select 1'"
    )
    assert told([a_threat()]) == []
    assert len(told([a_threat()], 60)) == 1
    assert told([a_threat()], 60) == []
    assert len(told([a_threat(), a_threat(4712), a_threat(holds="notifications")], 60)) == 3
    assert told([a_threat(4712), a_threat(holds="notifications")]) == [
        "queue.relieved holds=snapshot pid=4711 name='psql' since=2026-01-31T12:00:00.000000Z"
    ]
    assert len(told([a_threat()])) == 3


def test_a_dispatcher_removes_what_is_old_and_ends_as_it_always_does(
    database: Database, run_dispatcher: RunDispatcher
) -> None:
    ended(database, 3)
    dispatcher = run_dispatcher(env={"TALLY_KEEP": "2d"})

    await_left(database, [])

    dispatcher.wait_for("retention.removed tasks=3 dispatchers=0")
    assert dispatcher.stop() == 0


def test_a_dispatcher_goes_on_without_its_retention(ledger: Ledger, run_dispatcher: RunDispatcher) -> None:
    dispatcher = run_dispatcher()
    ending = ledger.submit("end_thread", thread="retention", seconds=0)

    dispatcher.wait_for("thread.failed thread=retention")

    ledger.await_end(ending)
    assert ledger.await_end(ledger.submit("echo"))["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0

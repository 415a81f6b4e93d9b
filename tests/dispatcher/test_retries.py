"""An attempt that another is to follow, against a real database: written as any end is, and decided by the database."""

from collections.abc import Callable

import pytest

from dispatcher.messages import Outcome, Verdict
from dispatcher.outcomes import tell
from sql.states import TaskState
from tests.dispatcher.given import (
    a_caller,
    a_claim,
    again,
    allow_writes,
    attempts_of,
    claimed,
    published,
    refuse_writes,
    registered,
    state,
    succeeded,
)
from tests.dispatcher.writer import Writer, await_lock_or_round, error_of
from tests.sql import calls
from tests.support.database import Database
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

ON_PURPOSE = {"reason": "task raised ValueError", "detail": None}


def claimed_again(database: Database, writer: Writer) -> None:
    """Claim what is queued as the same dispatcher does, by a later call."""
    assert calls.claim(database.connect(), writer.dispatcher, 2)


def test_an_attempt_that_is_asked_for_waits_for_its_time(database: Database, writer: Writer) -> None:
    published(database)
    (task,) = claimed(database, writer.dispatcher, 1)
    with writer.works():
        writer.put(again(task, after_seconds=3600))
        report, verdict = writer.next()

    assert verdict == Verdict.WRITTEN
    assert isinstance(report, Outcome)
    assert (report.state, round(report.after_seconds or 0)) == (TaskState.QUEUED, 3600)
    assert attempts_of(database, task) == [(1, ON_PURPOSE)]
    assert state(database, task) == "QUEUED"
    assert calls.claim(database.connect(), writer.dispatcher, 2) == []


def test_without_a_time_of_its_own_it_waits_for_the_backoff_of_its_kind(database: Database, writer: Writer) -> None:
    published(database, backoff_seconds=1000)
    (task,) = claimed(database, writer.dispatcher, 1)
    with writer.works():
        writer.put(again(task))
        report, _ = writer.next()

    assert isinstance(report, Outcome)
    assert 500 <= (report.after_seconds or 0) <= 1000


def test_what_ends_and_what_is_tried_again_may_come_together(database: Database, writer: Writer) -> None:
    published(database)
    tasks = claimed(database, writer.dispatcher, 20)
    writer.put(*(again(task) if task % 2 else succeeded(task) for task in tasks))

    with writer.works():
        assert writer.verdicts(20) == dict.fromkeys(tasks, Verdict.WRITTEN)

    assert {task: state(database, task) for task in tasks} == {
        task: "QUEUED" if task % 2 else "SUCCEEDED" for task in tasks
    }


def test_the_last_attempt_ends_the_task_with_its_error_whatever_the_dispatcher_believes(
    database: Database, writer: Writer
) -> None:
    published(database, max_attempts=1)
    (task,) = claimed(database, writer.dispatcher, 1)
    with writer.works():
        writer.put(again(task))
        report, verdict = writer.next()

    assert (isinstance(report, Outcome) and report.state, verdict) == (TaskState.FAILED, Verdict.WRITTEN)
    assert (state(database, task), error_of(database, task)) == ("FAILED", ON_PURPOSE)
    assert attempts_of(database, task) == []


def test_a_task_whose_kind_nobody_published_has_no_other_attempt(database: Database, writer: Writer) -> None:
    (task,) = claimed(database, writer.dispatcher, 1)
    with writer.works():
        writer.put(again(task))

        assert writer.verdicts(1) == {task: Verdict.WRITTEN}
    assert state(database, task) == "FAILED"


def test_an_accepted_cancel_is_followed_by_no_attempt(database: Database, writer: Writer) -> None:
    published(database)
    (task,) = claimed(database, writer.dispatcher, 1)
    calls.cancel(database.connect(), task)
    with writer.works():
        writer.put(again(task))
        report, verdict = writer.next()

    assert (isinstance(report, Outcome) and report.state, verdict) == (TaskState.CANCELED, Verdict.WRITTEN)
    assert error_of(database, task) == {"reason": "canceled", "detail": "raised"}


@pytest.mark.parametrize("is_canceled", [False, True])
def test_a_locked_row_is_come_back_to_and_a_cancel_that_held_it_wins(
    database: Database, writer: Writer, is_canceled: bool
) -> None:
    published(database)
    tasks = claimed(database, writer.dispatcher, 3)
    held, others = tasks[1], [tasks[0], tasks[2]]
    holder = database.connect()
    with writer.works():
        with holder.transaction():
            if is_canceled:
                calls.cancel(holder, held)
            else:
                holder.execute("select from tally.task where id = %s for update", (held,))
            writer.put(*map(again, tasks))
            assert writer.verdicts(2) == dict.fromkeys(others, Verdict.WRITTEN)
            await_lock_or_round(writer)

        assert writer.verdicts(1) == {held: Verdict.WRITTEN}
    assert state(database, held) == ("CANCELED" if is_canceled else "QUEUED")
    assert writer.acknowledged_nothing_more()


@pytest.mark.parametrize(
    "action",
    [
        "raise exception 'no'",
        "raise exception 'no' using errcode = '42501'",
        "raise exception 'no' using errcode = '40001'",
        "perform pg_terminate_backend(pg_backend_pid())",
    ],
)
def test_one_that_fails_alone_for_a_while_holds_up_nobody_and_is_written_once_that_is_over(
    database: Database, writer: Writer, action: str
) -> None:
    published(database)
    tasks = claimed(database, writer.dispatcher, 4)
    refuse_writes(database, f"old.id = {tasks[2]}", action)
    with writer.works():
        writer.put(*map(again, tasks[:3]), succeeded(tasks[3]))
        assert set(writer.verdicts(3)) == {tasks[0], tasks[1], tasks[3]}
        await_lock_or_round(writer)
        (later,) = (each.id for each in calls.claim(database.connect(), writer.dispatcher, 2) if each.id == tasks[0])
        writer.put(succeeded(later, attempt=2))
        assert writer.verdicts(1) == {later: Verdict.WRITTEN}

        allow_writes(database)

        assert writer.verdicts(1) == {tasks[2]: Verdict.WRITTEN}
    assert state(database, tasks[2]) == "QUEUED"
    assert writer.acknowledged_nothing_more()


def test_one_that_runs_out_of_time_alone_holds_up_nobody(database: Database) -> None:
    writer = Writer(database, registered(database, statement_seconds=0.3))
    published(database)
    tasks = claimed(database, writer.dispatcher, 3)
    refuse_writes(database, f"old.id = {tasks[0]}", "perform pg_sleep(10)")
    with writer.works():
        writer.put(*map(again, tasks))
        assert set(writer.verdicts(2)) == {tasks[1], tasks[2]}
        await_lock_or_round(writer)

        allow_writes(database)

        assert writer.verdicts(1) == {tasks[0]: Verdict.WRITTEN}
    assert attempts_of(database, tasks[0]) == [(1, ON_PURPOSE)]


class Muted:
    """A writer behind a proxy that keeps back the reply to one retry, which is committed."""

    def __init__(self, database: Database, proxy: Callable[[str, int], Proxy]) -> None:
        self.way = proxy("127.0.0.1", database.server.port)
        # So long that nothing here runs out of time.
        reached = registered(database, statement_seconds=20, url=self.way.url_for(database.url))
        self.writer = Writer(database, reached)
        self.writer.first.ready()

    def answer(self) -> None:
        """The reply is lost, and the connection with it."""
        self.way.cut()
        self.way.thaw()


@pytest.mark.parametrize("since", ["waits", "claimed", "ended", "canceled"])
def test_a_reply_lost_after_the_commit_is_acknowledged_as_ours_whatever_became_of_the_task_since(
    database: Database, proxy: Callable[[str, int], Proxy], since: str
) -> None:
    published(database)
    muted = Muted(database, proxy)
    writer = muted.writer
    (task,) = claimed(database, writer.dispatcher, 1)
    connection = database.connect()
    with writer.works():
        muted.way.mute()
        writer.put(again(task))
        wait_until(lambda: state(database, task) == "QUEUED", "the retry is committed")
        if since in {"claimed", "ended"}:
            claimed_again(database, writer)
        if since == "ended":
            calls.finish(connection, writer.dispatcher, calls.succeeded(task, attempt=2))
        if since == "canceled":
            calls.cancel(connection, task)
        before = database.rows("select * from tally.task")

        muted.answer()

        assert writer.verdicts(1) == {task: Verdict.ALREADY}
    assert database.rows("select * from tally.task") == before


@pytest.mark.parametrize("end", ["succeeds", "is tried again"])
def test_the_next_attempt_may_end_before_the_one_before_is_acknowledged(
    database: Database, proxy: Callable[[str, int], Proxy], end: str
) -> None:
    published(database)
    muted = Muted(database, proxy)
    writer = muted.writer
    (task,) = claimed(database, writer.dispatcher, 1)
    with writer.works():
        muted.way.mute()
        writer.put(again(task))
        wait_until(lambda: state(database, task) == "QUEUED", "the retry is committed")
        claimed_again(database, writer)
        muted.way.refuse()
        muted.answer()
        writer.put(succeeded(task, attempt=2) if end == "succeeds" else again(task, attempt=2))
        muted.way.accept()

        told = {report.key: verdict for report, verdict in (writer.next(), writer.next())}

    assert told == {(task, 1): Verdict.ALREADY, (task, 2): Verdict.WRITTEN}
    assert state(database, task) == ("SUCCEEDED" if end == "succeeds" else "QUEUED")
    assert len(attempts_of(database, task)) == (1 if end == "succeeds" else 2)


def test_both_attempts_of_a_task_may_be_in_the_second_lane(database: Database, writer: Writer) -> None:
    published(database)
    (task,) = claimed(database, writer.dispatcher, 1)
    writing = a_caller(database, writer.reached, "clerk")
    delays = {"ids": [task], "attempts": [1], "errors": ['{"reason": "task raised ValueError", "detail": null}']}
    writing.call("retry_tasks", **delays, endings=["raised"], delays=[0.0])
    claimed_again(database, writer)
    refuse_writes(database, "true")
    holder = database.connect()
    with writer.works():
        with holder.transaction():
            holder.execute("select from tally.task where id = %s for update", (task,))
            writer.put(again(task), again(task, attempt=2))
            wait_until(lambda: writer.outcomes.lanes[1].pending, "the second lane has them")
        allow_writes(database)
        told = {report.key: verdict for report, verdict in (writer.next(), writer.next())}

    assert told == {(task, 1): Verdict.ALREADY, (task, 2): Verdict.WRITTEN}
    assert [attempt for attempt, _ in attempts_of(database, task)] == [1, 2]


def test_while_the_database_cannot_be_reached_it_waits_with_the_others(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    published(database)
    way = proxy("127.0.0.1", database.server.port)
    writer = Writer(database, registered(database, url=way.url_for(database.url)))
    tasks = claimed(database, writer.dispatcher, 4)
    way.refuse()
    with writer.works():
        writer.put(again(tasks[0]), succeeded(tasks[1]))
        wait_until(lambda: writer.turns > 3, "some tries failed")
        writer.put(again(tasks[2]), succeeded(tasks[3]))
        assert writer.acknowledged_nothing_more()

        way.accept()

        assert writer.verdicts(4) == dict.fromkeys(tasks, Verdict.WRITTEN)
    assert [state(database, task) for task in tasks] == ["QUEUED", "SUCCEEDED"] * 2


@pytest.mark.parametrize("attempt", [1, 2])
def test_one_that_comes_late_changes_nothing_and_frees_its_slot(
    database: Database, writer: Writer, attempt: int
) -> None:
    published(database)
    (task,) = claimed(database, writer.dispatcher, 1)
    if attempt == 1:
        calls.condemn(database.connect(), writer.dispatcher)
    before = database.rows("select * from tally.task")
    with writer.works():
        writer.put(again(task, attempt=attempt))

        assert writer.verdicts(1) == {task: Verdict.LATE}
    assert database.rows("select * from tally.task") == before


def test_giving_up_leaves_what_is_not_written_unacknowledged(database: Database, writer: Writer) -> None:
    published(database)
    tasks = claimed(database, writer.dispatcher, 2)
    refuse_writes(database, "true")
    with writer.works():
        writer.put(*map(again, tasks))
        wait_until(lambda: writer.outcomes.lanes[1].pending == 2, "both are with the second lane")

    assert writer.acknowledged_nothing_more()
    assert {state(database, task) for task in tasks} == {"RUNNING"}


@pytest.mark.parametrize(
    ("is_known", "said"), [(True, "seconds=1.500"), (False, "seconds=?")], ids=["its time", "no time"]
)
def test_what_is_attempted_again_is_said_with_the_error_and_the_time(
    caplog: pytest.LogCaptureFixture, is_known: bool, said: str
) -> None:
    caplog.set_level("INFO")

    tell(again(7, after_seconds=1.5 if is_known else None), Verdict.WRITTEN)

    (record,) = caplog.records
    assert record.getMessage().startswith("task.retried task=7 attempt=1 kind=echo ending=raised verdict=written ")
    assert f'{said} error={{"reason": "task raised ValueError"' in record.getMessage()
    assert a_claim(7).key == (7, 1)

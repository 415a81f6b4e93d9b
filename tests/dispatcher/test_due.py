"""Tasks between two attempts, as the loop treats them: released in time, and never in the way of anything else."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import pytest

from dispatcher.messages import Report, Verdict
from sql.connect import Connection
from tests.dispatcher.given import allow_writes, attempts_of, claimed, published, refuse_writes, registered, state
from tests.dispatcher.looped import TIMES, Looped
from tests.sql import calls
from tests.support.database import Database
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

NO_SWEEP = replace(TIMES, sweep=timedelta(days=1))


def queued(connection: Connection, kind: str, count: int = 1) -> list[int]:
    with connection.transaction():
        tasks = calls.submit_all(connection, count)
        connection.execute("update tally.task set kind = %s where id = any (%s)", (kind, tasks))
    return tasks


def waiting(database: Database, seconds: float, count: int = 1) -> list[int]:
    """Make tasks that another dispatcher, which is gone, has attempted, and that are due in so many seconds."""
    published(database)
    connection = database.connect()
    other = calls.register(connection)
    # In one transaction: nobody else sees them queued.
    with connection.transaction():
        tasks = queued(connection, "echo", count)
        assert len(calls.claim(connection, other, only=tasks)) == count
        written = calls.retry(connection, other, *(calls.Ended(id=task, delay=seconds) for task in tasks))
        assert {each.verdict for each in written.values()} == {"written"}
    return tasks


def await_state(database: Database, task: int, expected: str, seconds: float = 20) -> None:
    wait_until(lambda: state(database, task) == expected, f"task {task} is {expected}", seconds)


@pytest.mark.parametrize("backoff_seconds", [0, 0.2])
def test_the_next_attempt_begins_when_it_is_due_without_a_sweep(database: Database, backoff_seconds: float) -> None:
    looped = Looped(database, registered(database), NO_SWEEP)
    looped.fails = 2
    published(database, "try", backoff_seconds=backoff_seconds)
    (task,) = queued(database.connect(), "try")
    began = monotonic()
    with looped.runs():
        await_state(database, task, "SUCCEEDED", 10)

    assert monotonic() - began > backoff_seconds
    assert [attempt for attempt, _ in attempts_of(database, task)] == [1, 2]
    assert database.value("select attempt from tally.task") == 3


@pytest.mark.parametrize("repeats", [True, False], ids=["some kind is repeated", "none of its kinds is"])
def test_what_others_left_waiting_is_released_when_it_is_due(database: Database, repeats: bool) -> None:
    looped = Looped(database, registered(database), NO_SWEEP, repeats=repeats)
    (now,), (soon,), (later,) = (waiting(database, seconds) for seconds in (0.01, 1, 3600))
    with looped.runs():
        for task in (now, soon):
            await_state(database, task, "SUCCEEDED", 10)

    assert state(database, later) == "QUEUED"


@pytest.mark.parametrize("repeats", [True, False], ids=["at every sweep", "seldom, where none of its kinds is"])
def test_what_comes_to_wait_elsewhere_is_found(
    database: Database, monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    monkeypatch.setattr("dispatcher.loop.SELDOM_SECONDS", 0.5)
    looped = Looped(database, registered(database), TIMES if repeats else NO_SWEEP, repeats=repeats)
    with looped.runs():
        wait_until(lambda: looped.turns > 3, "it has looked")
        (task,) = waiting(database, 0.3)

        await_state(database, task, "SUCCEEDED", 10)


def test_a_draining_dispatcher_releases_nothing_and_ends_with_0(database: Database, looped: Looped) -> None:
    (busy,) = queued(database.connect(), "stay")
    with looped.runs() as status:
        await_state(database, busy, "RUNNING")
        looped.inbox.signal()
        wait_until(looped.loop.is_stopping, "it drains")
        (task,) = waiting(database, 0.01)
        turns = looped.turns
        wait_until(lambda: looped.turns > turns + 2, "it has made turns since")
        assert database.value("select due_at is not null from tally.task where id = %s", (task,))
        looped.gate.set()

        assert status.result() == 0
    assert state(database, task) == "QUEUED"


@pytest.mark.parametrize(
    "action", ["raise exception 'no'", "raise exception 'no' using errcode = '42501'", "perform pg_sleep(10)"]
)
def test_what_cannot_be_released_keeps_no_other_task_from_being_run(database: Database, action: str) -> None:
    looped = Looped(database, registered(database, statement_seconds=0.3))
    (stuck,) = waiting(database, 0.01)
    refuse_writes(database, f"old.id = {stuck}", action)
    with looped.runs():
        for _ in range(3):
            (task,) = queued(database.connect(), "echo")
            await_state(database, task, "SUCCEEDED", 5)
        assert state(database, stuck) == "QUEUED"

        allow_writes(database)

        await_state(database, stuck, "SUCCEEDED")


def test_one_task_that_takes_all_the_time_keeps_no_other_from_being_released(database: Database) -> None:
    looped = Looped(database, registered(database, statement_seconds=0.3))
    tasks = waiting(database, 0.01, 5)
    refuse_writes(database, f"old.id = {tasks[1]}", "perform pg_sleep(10)")
    with looped.runs():
        for task in tasks[:1] + tasks[2:]:
            await_state(database, task, "SUCCEEDED", 10)
        assert state(database, tasks[1]) == "QUEUED"

        allow_writes(database)

        await_state(database, tasks[1], "SUCCEEDED")


def test_what_is_locked_is_released_soon_after(database: Database) -> None:
    looped = Looped(database, registered(database), NO_SWEEP)
    held, other = waiting(database, 0.01, 2)
    holder = database.connect()
    with looped.runs():
        with holder.transaction():
            holder.execute("select from tally.task where id = %s for update", (held,))
            await_state(database, other, "SUCCEEDED")

        await_state(database, held, "SUCCEEDED", 10)


def test_more_than_one_call_may_release_are_released_without_a_wait(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.due.MOST", 10)
    looped = Looped(database, registered(database), NO_SWEEP)
    tasks = waiting(database, 0.01, 35)
    with looped.runs():
        wait_until(lambda: {state(database, task) for task in tasks} == {"SUCCEEDED"}, "all have ended", 10)


def test_a_release_waits_while_the_database_is_away(database: Database, proxy: Callable[[str, int], Proxy]) -> None:
    way = proxy("127.0.0.1", database.server.port)
    looped = Looped(database, registered(database, url=way.url_for(database.url)), NO_SWEEP)
    (task,) = waiting(database, 0.01)
    way.refuse()
    with looped.runs():
        wait_until(lambda: looped.loop.trouble, "the database is found away")
        turns, began = looped.turns, monotonic()
        wait_until(lambda: monotonic() - began > 0.5, "some time has passed")
        assert looped.turns - turns < 60, "it turns without waiting"

        way.accept()

        await_state(database, task, "SUCCEEDED", 10)


def test_the_next_attempt_may_be_claimed_before_the_end_of_the_one_before_is_acknowledged(
    database: Database, looped: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(database, "try")
    (task,) = queued(database.connect(), "try")
    acknowledge = looped.loop.acknowledge
    kept: list[list[tuple[Report, Verdict]]] = []

    def acknowledge_later(written: list[tuple[Report, Verdict]]) -> None:
        if kept:
            acknowledge(written)
        else:
            kept.append(written)

    # The reply to the first write is long in coming.
    monkeypatch.setattr(looped.loop, "acknowledge", acknowledge_later)
    with looped.runs():
        await_state(database, task, "SUCCEEDED")
        wait_until(lambda: looped.slots.busy == 1, "the second attempt's slot is free")

        acknowledge(kept[0])

        wait_until(lambda: looped.slots.busy == 0, "the first attempt's slot is free")
    assert [attempt for attempt, _ in attempts_of(database, task)] == [1]


def test_what_is_given_up_and_may_run_again_after_a_crash_is_left_running_and_the_loop_ends_with_1_at_once(
    database: Database, looped: Looped
) -> None:
    published(database, "stay", on_crash="retry")
    (task,) = queued(database.connect(), "stay")
    with looped.runs() as status:
        assert looped.begun.get(timeout=10) == task
        began = monotonic()
        for _ in range(2):
            looped.inbox.signal()

        assert status.result() == 1
        assert monotonic() - began < TIMES.drain_reserve.total_seconds()
        assert state(database, task) == "RUNNING"
    assert database.value("select stopped_at from tally.dispatcher") is None, "it has not left"


def test_what_is_given_up_in_its_last_attempt_is_failed(database: Database, looped: Looped) -> None:
    published(database, "stay", on_crash="retry")
    (task,) = queued(database.connect(), "stay")
    database.execute("update tally.task set attempt = 2")
    with looped.runs() as status:
        assert looped.begun.get(timeout=10) == task
        for _ in range(2):
            looped.inbox.signal()

        assert status.result() == 1
    assert state(database, task) == "FAILED"
    assert database.value("select error ->> 'reason' from tally.task") == "dispatcher stopped before worker completion"


def test_a_row_under_its_name_that_it_does_not_hold_waits_for_an_attempt_where_a_crash_is_repeated(
    database: Database, looped: Looped
) -> None:
    published(database, "echo", on_crash="retry")
    (lost,) = claimed(database, looped.dispatcher, 1)
    with looped.runs():
        await_state(database, lost, "SUCCEEDED")

    ((attempt, error),) = attempts_of(database, lost)
    assert (attempt, isinstance(error, dict) and error["reason"]) == (1, "the database lost this task's outcome")


def test_many_slow_releases_keep_claims_only_for_moments(database: Database) -> None:
    looped = Looped(database, registered(database, statement_seconds=0.3))
    tasks = waiting(database, 0.01, 60)
    refuse_writes(database, "old.due_at is not null", "perform pg_sleep(0.1)")
    with looped.runs():
        wait_until(lambda: looped.begun.qsize() > 0, "the first of them runs", 4)
        (task,) = queued(database.connect(), "echo")
        await_state(database, task, "SUCCEEDED", 4)
        wait_until(lambda: {state(database, each) for each in tasks} == {"SUCCEEDED"}, "all have ended", 60)

"""The loop with a real database: what it does not wait for, and what must not stop it."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import pytest

from dispatcher.messages import Word
from tests.dispatcher.given import a_claim, allow_writes, claimed, refuse_writes, registered, state
from tests.dispatcher.looped import TIMES, Looped
from tests.sql import calls
from tests.support.database import Database
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until


def test_what_is_queued_is_run_and_a_signal_ends_the_loop_with_0(database: Database, looped: Looped) -> None:
    tasks = calls.submit_all(database.connect(), 20)
    with looped.runs() as status:
        wait_until(lambda: {state(database, task) for task in tasks} == {"SUCCEEDED"}, "every task has ended")

        looped.inbox.signal()

        assert status.result() == 0
    assert database.value("select stopped_why from tally.dispatcher") == "left"


def test_many_slots_are_claimed_for_by_halves(
    database: Database, looped: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.loop.FEWEST_AT_ONCE", 1)
    calls.submit_all(database.connect(), 4)
    database.execute("update tally.task set kind = 'sleep'")
    with looped.runs():
        wait_until(lambda: looped.slots.free == 0, "its slots are full")

        claims = database.rows("select claim_number, count(*) from tally.task group by claim_number order by 1")

    assert [count for _, count in claims] == [2, 2]


def test_a_full_loop_that_is_woken_by_name_passes_it_on(database: Database) -> None:
    looped = Looped(database, registered(database), replace(TIMES, sweep=timedelta(days=1)))
    clerk, ears = database.connect(), database.connect()
    calls.submit(clerk, 4)
    database.execute("update tally.task set kind = 'sleep'")
    with looped.runs():
        wait_until(lambda: looped.slots.free == 0, "its slots are full")
        other = calls.register(clerk)
        assert calls.claim(clerk, other) == []
        calls.call(ears, "listen", dispatcher=other)
        calls.submit(clerk, notify=False)

        looped.inbox.put(Word.WOKEN_BY_NAME)

        (woken,) = ears.notifies(timeout=10, stop_after=1)
    assert woken.channel == f"tally_work:{other}"


@pytest.mark.parametrize("by", ["a settlement", "tasks tried alone"])
def test_a_loop_whose_slots_are_filled_by_what_wakes_nobody_passes_its_wake_on(database: Database, by: str) -> None:
    looped = Looped(database, registered(database), replace(TIMES, sweep=timedelta(days=1)))
    clerk, ears = database.connect(), database.connect()
    other = calls.register(clerk)
    assert calls.claim(clerk, other) == []
    calls.call(ears, "listen", dispatcher=other)
    calls.submit(clerk, 5, notify=False)
    database.execute("update tally.task set kind = 'sleep'")
    if by == "a settlement":
        # It took four of the five, and the reply was lost.
        looped.claims.unsettled = 1
        four = [task for (task,) in database.rows("select id from tally.task order by id limit 4")]
        assert len(calls.claim(clerk, looped.dispatcher, 1, only=four)) == 4
    else:
        looped.claims._cautious_until = float("inf")
    looped.inbox.put(Word.WOKEN_BY_NAME)

    with looped.runs():
        (woken,) = ears.notifies(timeout=10, stop_after=1)

    assert woken.channel == f"tally_work:{other}"


def test_a_condemned_loop_ends_with_1(database: Database, looped: Looped) -> None:
    with looped.runs() as status:
        calls.condemn(database.connect(), looped.dispatcher)
        looped.inbox.put(Word.WOKEN)

        assert status.result() == 1


def test_a_signal_is_heard_within_a_round_of_tasks_that_each_run_out_of_time(database: Database) -> None:
    looped = Looped(database, registered(database, statement_seconds=0.3))
    tasks = calls.submit_all(database.connect(), 40)
    refuse_writes(database, "new.state = 'RUNNING'", "perform pg_sleep(10)")
    with looped.runs() as status:
        wait_until(lambda: looped.turns > 2, "tasks are tried, one by one, each a turn")
        began = monotonic()

        looped.inbox.signal()

        assert status.result() == 0
    assert monotonic() - began < 5, "all the tasks were tried before the signal was heard"
    assert {state(database, task) for task in tasks} == {"QUEUED"}


def test_an_idle_loop_makes_turns_however_seldom_it_sweeps(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatcher.loop.LONGEST_WAIT_SECONDS", 0.01)
    looped = Looped(database, registered(database), replace(TIMES, sweep=timedelta(days=1)))
    with looped.runs():
        wait_until(lambda: looped.turns > 20, "the loop makes turns", 10)


def test_a_claim_to_be_asked_about_waits_while_the_database_is_away(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    looped = Looped(database, registered(database, url=way.url_for(database.url)))
    (task,) = claimed(database, looped.dispatcher, 1)
    looped.slots.start(a_claim(task, known_at=0.0))
    way.refuse()
    with looped.runs():
        wait_until(lambda: looped.loop.trouble, "the database is found away")
        turns, spent, began = looped.turns, os.times().user, monotonic()
        wait_until(lambda: monotonic() - began > 0.5, "some time has passed")
        assert looped.turns - turns < 60, f"it turns without waiting, {os.times().user - spent:.2f} s of CPU"

        way.accept()

        wait_until(lambda: state(database, task) == "SUCCEEDED", "the claim was begun after all")
    assert looped.begun.get(timeout=5) == task


def test_a_claim_to_be_asked_about_does_not_keep_a_condemned_dispatcher(database: Database, looped: Looped) -> None:
    (task,) = claimed(database, looped.dispatcher, 1)
    looped.slots.start(a_claim(task, known_at=0.0))
    calls.condemn(database.connect(), looped.dispatcher)
    began = monotonic()
    with looped.runs() as status:
        assert status.result() == 1

    assert monotonic() - began < 5, "it waited for a body that will never begin"
    assert looped.begun.empty()


def test_a_claim_that_was_lost_meanwhile_is_not_begun_and_frees_its_slot(database: Database, looped: Looped) -> None:
    (task,) = claimed(database, looped.dispatcher, 1)
    database.execute("update tally.task set attempt = 2")
    looped.slots.start(a_claim(task, known_at=0.0))
    with looped.runs():
        wait_until(lambda: looped.slots.busy == 0, "the slot is free")

    assert looped.begun.empty()


def test_rows_under_its_name_that_it_does_not_hold_are_failed(database: Database, looped: Looped) -> None:
    (lost,) = claimed(database, looped.dispatcher, 1)
    with looped.runs():
        wait_until(lambda: state(database, lost) == "FAILED", "the lost row is failed")

    assert looped.begun.empty()


@pytest.mark.parametrize("code", ["P0001", "42501", "55P03", "40001"])
def test_a_lost_row_that_cannot_be_failed_does_not_keep_others_from_being_claimed(
    database: Database, looped: Looped, code: str
) -> None:
    (lost,) = claimed(database, looped.dispatcher, 1)
    refuse_writes(database, f"old.id = {lost}", f"raise exception 'no' using errcode = '{code}'")
    with looped.runs():
        task = calls.submit_one(database.connect())
        wait_until(lambda: state(database, task) == "SUCCEEDED", "another task is run", 5)

        allow_writes(database)

        wait_until(lambda: state(database, lost) == "FAILED", "the lost row is failed")


def test_a_second_signal_gives_up_what_still_runs(database: Database, looped: Looped) -> None:
    task = calls.submit_one(database.connect())
    database.execute("update tally.task set kind = 'sleep'")
    with looped.runs() as status:
        assert looped.begun.get(timeout=5) == task
        looped.inbox.signal()
        looped.inbox.signal()

        assert status.result() == 1
    assert database.value("select error ->> 'reason' from tally.task") == "dispatcher stopped before worker completion"


def test_lost_rows_that_take_too_long_to_fail_keep_neither_claims_nor_each_other(database: Database) -> None:
    looped = Looped(database, registered(database, statement_seconds=0.2))
    slow, lost = claimed(database, looped.dispatcher, 2)
    refuse_writes(database, f"old.id = {slow}", "perform pg_sleep(10)")
    with looped.runs():
        wait_until(lambda: state(database, lost) == "FAILED", "the other lost row is failed", 5)
        for _ in range(3):
            task = calls.submit_one(database.connect())
            wait_until(lambda task=task: state(database, task) == "SUCCEEDED", "a task is run", 5)  # type: ignore[misc]

    assert state(database, slow) == "RUNNING"


def test_a_dispatcher_that_has_left_and_is_told_that_it_is_stopped_ends_with_0(
    database: Database, looped: Looped
) -> None:
    calls.leave(database.connect(), looped.dispatcher)
    looped.inbox.signal()
    looped.inbox.put(Word.CONDEMNED)
    with looped.runs() as status:
        assert status.result() == 0

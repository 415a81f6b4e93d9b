"""How long until a dispatcher that died, froze or was cut off is known to be dead; and who never is."""

from collections.abc import Callable
from signal import SIGCONT, SIGSTOP, SIGTERM
from time import monotonic
from typing import Final
from urllib.parse import quote

import pytest

from tests.support.bodies import Bodies
from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.namespaces import another_namespace
from tests.support.program import SETTINGS, Program, RunDispatcher
from tests.support.proxy import MakeProxy
from tests.support.service import SLACK
from tests.support.waiting import outlast, wait_until

DEFAULTS: Final = {name: None for name in SETTINGS if name != "PORT"}
GRACE: Final = 6
"""Seconds, by default."""
STALL: Final = 5
"""Seconds: the least that start-up accepts with statements this short."""
SHORT: Final = {"TALLY_STATEMENT_SECONDS": "0.5", "TALLY_STALL_SECONDS": str(STALL)}


def seconds_until_ended(ledger: Ledger, tasks: list[int], began: float) -> float:
    for task in tasks:
        ledger.await_end(task, seconds=30)
    return monotonic() - began


def beats(database: Database, dispatcher: Program) -> int:
    return int(database.value("select beat from tally.dispatcher where pid = %s", (dispatcher.pid,)))


def await_beats(database: Database, dispatcher: Program, seconds: float) -> None:
    """Wait until a dispatcher has beaten for so long, with the tests' settings."""
    enough = beats(database, dispatcher) + seconds / float(SETTINGS["TALLY_BEAT_SECONDS"])
    wait_until(lambda: beats(database, dispatcher) > enough, f"it has beaten for {seconds} s", seconds + 20)


def socket_url(database: Database) -> str:
    """The same database by the server's Unix socket, which is there for every network namespace."""
    server = database.server
    return f"postgresql://postgres@/{database.name}?host={quote(str(server.folder / 'server'))}&port={server.port}"


def test_what_a_killed_dispatcher_held_ends_within_two_seconds_where_a_judge_is_on_its_machine(
    bodies: Bodies, run_dispatcher: RunDispatcher
) -> None:
    judge = run_dispatcher(env=DEFAULTS)
    for _ in range(3):
        # The judge's slots are full, so that another's are needed.
        filling = bodies.begin(8)
        killed = run_dispatcher(env=DEFAULTS)
        tasks = bodies.begin(5)
        began = monotonic()
        killed.kill()

        assert seconds_until_ended(bodies.ledger, tasks, began) < 2 + SLACK

        assert {bodies.ledger.task(task)["error"]["reason"] for task in tasks} == {
            "process exited before worker completion"
        }
        for detail in bodies.details(tasks):
            assert f"process {killed.pid} on" in detail
            assert "; (a) exited: " in detail
        bodies.gate.touch()
        assert {bodies.ledger.await_end(task)["state"] for task in filling} == {"SUCCEEDED"}
        bodies.gate.unlink()
    assert judge.stop() == 0
    bodies.reconcile()


def test_what_a_killed_dispatcher_held_ends_within_the_grace_period_and_two_seconds_where_only_others_remain(
    bodies: Bodies, run_dispatcher: RunDispatcher
) -> None:
    killed = run_dispatcher(env=DEFAULTS)
    tasks = bodies.begin(5)
    with another_namespace() as elsewhere, elsewhere.entered():
        judge = run_dispatcher(env={**DEFAULTS, "DATABASE_URL": socket_url(bodies.ledger.database)})
    began = monotonic()
    killed.kill()

    assert GRACE - 1 < seconds_until_ended(bodies.ledger, tasks, began) < GRACE + 2 + SLACK

    reasons = {bodies.ledger.task(task)["error"]["reason"] for task in tasks}
    assert reasons == {"dispatcher lost before worker completion"}
    assert all("; (b) lost: its lock is free" in detail for detail in bodies.details(tasks))
    assert judge.stop() == 0
    bodies.reconcile()


def test_a_running_task_whose_cancel_was_accepted_ends_canceled_when_a_judge_finds_its_dispatcher_killed(
    bodies: Bodies, run_dispatcher: RunDispatcher
) -> None:
    killed = run_dispatcher()
    tasks = bodies.begin(2)
    judge = run_dispatcher()
    bodies.ledger.cancel(tasks[0])
    killed.kill()

    assert [bodies.ledger.await_end(task)["state"] for task in tasks] == ["CANCELED", "FAILED"]
    canceled, failed = bodies.details(tasks)
    assert canceled.startswith("process exited before worker completion; held by dispatcher")
    assert failed.startswith("held by dispatcher")
    assert judge.stop() == 0
    bodies.reconcile()


def freeze(dispatcher: Program) -> Callable[[], None]:
    dispatcher.send(SIGSTOP)
    return lambda: dispatcher.send(SIGCONT)


def test_a_frozen_dispatcher_is_lost_after_the_stall_limit_and_does_no_harm_when_it_wakes(
    bodies: Bodies, run_dispatcher: RunDispatcher
) -> None:
    working = run_dispatcher("--slots", "2", env=SHORT)
    tasks = bodies.begin(2)
    judge = run_dispatcher("--slots", "1", env=SHORT)
    bodies.begin(1)
    began = monotonic()
    wake = freeze(working)

    assert STALL - 1 < seconds_until_ended(bodies.ledger, tasks, began) < STALL + 2 + SLACK

    lost, queued = bodies.rows(tasks), bodies.ledger.submit("echo", effects=str(bodies.left))
    assert all("; (c) frozen or cut off: its lock was held" in detail for detail in bodies.details(tasks))
    bodies.gate.touch()
    wake()
    assert working.wait() == 1
    assert working.saw("dispatcher.condemned")
    assert bodies.rows(tasks) == lost, "it wrote something when it woke"
    assert bodies.ledger.await_end(queued)["state"] == "SUCCEEDED"
    assert judge.stop() == 0
    bodies.reconcile()


def test_a_dispatcher_that_is_thawed_just_before_the_stall_limit_goes_on(
    bodies: Bodies, run_dispatcher: RunDispatcher
) -> None:
    working = run_dispatcher(env=SHORT)
    tasks = bodies.begin(2)
    judge = run_dispatcher(env=SHORT)
    wake = freeze(working)

    outlast(STALL - 1)
    wake()

    await_beats(bodies.ledger.database, working, 2)
    assert not judge.saw("dispatcher.condemned")
    bodies.gate.touch()
    assert {bodies.ledger.await_end(task)["state"] for task in tasks} == {"SUCCEEDED"}
    assert (working.stop(), judge.stop()) == (0, 0)
    bodies.reconcile()


def test_a_dispatcher_that_is_cut_off_is_lost_after_the_stall_limit_and_does_no_harm_when_it_is_back(
    bodies: Bodies, run_dispatcher: RunDispatcher, proxy: MakeProxy
) -> None:
    database = bodies.ledger.database
    way = proxy("127.0.0.1", database.server.port)
    working = run_dispatcher(env={**SHORT, "DATABASE_DIRECT_URL": way.url_for(database.url)})
    tasks = bodies.begin(2)
    judge = run_dispatcher(env=SHORT)
    began = monotonic()
    way.freeze()
    # Its bodies end, and it tries in vain to say so.
    bodies.gate.touch()

    assert STALL - 1 < seconds_until_ended(bodies.ledger, tasks, began) < STALL + 2 + SLACK

    lost = bodies.rows(tasks)
    assert all("; (c) frozen or cut off: its lock was held" in detail for detail in bodies.details(tasks))
    way.thaw()
    assert working.wait() == 1
    assert bodies.rows(tasks) == lost, "it wrote something when it was back"
    assert judge.stop() == 0
    bodies.reconcile()


@pytest.mark.long
def test_neither_a_long_body_nor_a_long_drain_makes_a_dispatcher_lost(
    bodies: Bodies, run_dispatcher: RunDispatcher
) -> None:
    patient = {**SHORT, "TALLY_DRAIN_SECONDS": "60"}
    draining, working = run_dispatcher("--slots", "1", env=patient), run_dispatcher("--slots", "1", env=patient)
    tasks = bodies.begin(2)
    draining.send(SIGTERM)
    draining.wait_for("dispatcher.draining")
    judge = run_dispatcher("--slots", "1", env=patient)
    longest = max(STALL, float(SETTINGS["TALLY_GRACE_SECONDS"])) + 1

    for each in (draining, working):
        await_beats(bodies.ledger.database, each, longest)

    later = bodies.ledger.submit("echo", effects=str(bodies.left))
    assert bodies.ledger.await_end(later)["state"] == "SUCCEEDED"
    claimed = "select count(*) from tally.task join tally.dispatcher on dispatcher.id = claimed_by where pid = %s"
    assert bodies.ledger.database.value(claimed, (draining.pid,)) == 1, "a draining dispatcher claims nothing"
    bodies.gate.touch()
    assert draining.wait() == 0
    assert {bodies.ledger.await_end(task)["state"] for task in tasks} == {"SUCCEEDED"}
    assert (working.stop(), judge.stop()) == (0, 0)
    assert not any(each.saw("why=lost") for each in (draining, working, judge))
    bodies.reconcile()


@pytest.mark.parametrize("hours", [1, pytest.param(-1, marks=pytest.mark.long)])
def test_nothing_is_judged_by_stored_times(bodies: Bodies, run_dispatcher: RunDispatcher, hours: int) -> None:
    database = bodies.ledger.database
    frozen, first, second = (run_dispatcher("--slots", "1", env=SHORT) for _ in range(3))
    tasks = bodies.begin(3)
    held = "select task.id from tally.task join tally.dispatcher on dispatcher.id = claimed_by where pid = %s"
    lost = database.value(held, (frozen.pid,))
    began = monotonic()
    wake = freeze(frozen)

    def ended_under_a_clock_that_steps() -> bool:
        # What a step of the database's clock makes of the times that are stored.
        database.execute(
            "update tally.dispatcher set beaten_at = beaten_at + make_interval(hours => %s),"
            " started_at = started_at + make_interval(hours => %s)",
            (hours, hours),
        )
        return bodies.ledger.state(lost) == "FAILED"

    wait_until(ended_under_a_clock_that_steps, "the frozen one's task has ended")
    assert STALL - 1 < monotonic() - began < STALL + 2 + SLACK
    wake()
    bodies.gate.touch()
    assert frozen.wait() == 1
    ends = {task: bodies.ledger.await_end(task)["state"] for task in tasks}
    assert ends == {task: "FAILED" if task == lost else "SUCCEEDED" for task in tasks}
    assert (first.stop(), second.stop()) == (0, 0)
    bodies.reconcile()

"""Stopping a dispatcher: in the middle of work, at its deadline, under a flood, with nothing to do."""

import random
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.program import SETTINGS, RunDispatcher
from tests.support.tasks import effects
from tests.support.waiting import wait_until


def test_a_drain_waits_for_the_bodies_and_claims_nothing_more(
    ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    dispatcher = run_dispatcher("--slots", "2")
    running = ledger.submit("gate", gate=str(gate))
    ledger.await_state(running, "RUNNING")
    dispatcher.send(SIGTERM)
    dispatcher.wait_for("dispatcher.draining")
    queued = ledger.submit("echo")

    assert dispatcher.running
    gate.touch()

    assert dispatcher.wait() == 0
    assert ledger.task(running)["state"] == "SUCCEEDED"
    assert ledger.task(queued)["state"] == "QUEUED"
    ledger.reconcile()


def test_a_draining_dispatcher_waits_for_a_body_whose_cancel_was_accepted(
    ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    dispatcher = run_dispatcher()
    task = ledger.submit("gate", gate=str(gate))
    ledger.await_state(task, "RUNNING")
    ledger.cancel(task)
    dispatcher.send(SIGTERM)
    dispatcher.wait_for("dispatcher.draining")
    held = ledger.task(task)
    assert (held["state"], held["cancel_requested"]) == ("RUNNING", True)

    gate.touch()

    assert dispatcher.wait() == 0
    end = ledger.task(task)
    assert (end["state"], end["result"], end["error"]["detail"]) == ("CANCELED", None, "returned")
    ledger.reconcile()


def test_at_the_drain_deadline_what_still_runs_fails_and_the_exit_status_is_1(
    ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher(env={"TALLY_DRAIN_SECONDS": "1.5", "TALLY_DRAIN_RESERVE_SECONDS": "1"})
    running = ledger.submit("sleep", seconds=60, stubborn=True)
    canceled = ledger.submit("sleep", seconds=60, stubborn=True)
    ledger.await_state(running, "RUNNING")
    ledger.await_state(canceled, "RUNNING")
    ledger.cancel(canceled)

    assert dispatcher.stop() == 1

    assert ledger.task(running)["error"]["reason"] == "dispatcher stopped before worker completion"
    assert ledger.task(canceled)["state"] == "CANCELED"
    assert ledger.task(canceled)["error"]["detail"] == "still running"
    ledger.reconcile()


def test_an_idle_dispatcher_leaves_with_status_0_while_the_database_is_there(
    database: Database, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher()

    assert dispatcher.stop() == 0

    assert database.rows("select stopped_why, stopped_at is not null from tally.dispatcher") == [("left", True)]


@pytest.mark.parametrize("stops", [6, pytest.param(50, marks=pytest.mark.long)])
def test_under_a_flood_every_exit_0_leaves_no_running_row(
    ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path, stops: int
) -> None:
    left = tmp_path / "effects"
    for _ in range(stops):
        missing = 400 - ledger.states()["QUEUED"]
        ledger.submit_many("echo", [{"effects": str(left)}] * missing)
        dispatcher = run_dispatcher("--slots", "8")
        enough = ledger.states()["SUCCEEDED"] + random.randint(0, 150)
        wait_until(lambda enough=enough: ledger.states()["SUCCEEDED"] >= enough, "work is under way")  # type: ignore[misc]

        assert dispatcher.stop() == 0

        assert ledger.states()["RUNNING"] == 0
        done = {task for (task,) in ledger.database.rows("select id from tally.task where state = 'SUCCEEDED'")}
        assert set(effects(left)) == done
    ledger.reconcile(effects(left))


def test_a_drain_longer_than_the_grace_period_beats_to_the_end_and_nobody_takes_its_task(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    draining = run_dispatcher(env={"TALLY_DRAIN_SECONDS": "60"})
    task = ledger.submit("gate", gate=str(gate))
    ledger.await_state(task, "RUNNING")
    judge = run_dispatcher()
    draining.send(SIGTERM)
    draining.wait_for("dispatcher.draining")
    beat = "select beat from tally.dispatcher join tally.task on claimed_by = dispatcher.id"
    before = database.value(beat)
    beats_in_grace = float(SETTINGS["TALLY_GRACE_SECONDS"]) / float(SETTINGS["TALLY_BEAT_SECONDS"])

    wait_until(lambda: database.value(beat) > before + beats_in_grace, "it has beaten for the grace period")
    assert ledger.state(task) == "RUNNING"
    gate.touch()

    assert draining.wait() == 0
    assert ledger.task(task)["state"] == "SUCCEEDED"
    assert not judge.saw("dispatcher.condemned")
    ledger.reconcile()

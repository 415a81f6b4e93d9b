"""Stopping a dispatcher: at once, in the middle of work, with the database away, asked twice."""

import re
import subprocess
import sys
from pathlib import Path
from signal import SIGTERM
from time import monotonic

import pytest

from tests.support.database import Database
from tests.support.faults import FINISH, fault, raising
from tests.support.ledger import Ledger
from tests.support.program import ROOT, RunDispatcher, environment
from tests.support.server import TestServer
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
    wait_until(lambda: dispatcher.saw("dispatcher.draining"), "the drain has begun")
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
    wait_until(lambda: dispatcher.saw("dispatcher.draining"), "the drain has begun")
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


def test_a_second_signal_does_not_wait_for_the_deadline(ledger: Ledger, run_dispatcher: RunDispatcher) -> None:
    dispatcher = run_dispatcher(env={"TALLY_DRAIN_SECONDS": "600"})
    task = ledger.submit("sleep", seconds=60, stubborn=True)
    ledger.await_state(task, "RUNNING")

    dispatcher.send(SIGTERM)
    # The kernel makes one of signals that arrive together; the second is one that comes after the first was heard.
    wait_until(lambda: dispatcher.saw("dispatcher.draining"), "the first signal was heard")
    dispatcher.send(SIGTERM)

    assert dispatcher.wait(10) == 1
    assert ledger.task(task)["error"]["reason"] == "dispatcher stopped before worker completion"
    ledger.reconcile()


def test_with_the_database_frozen_the_process_is_gone_by_the_deadline(
    server: TestServer, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher(env={"TALLY_DRAIN_SECONDS": "2", "TALLY_DRAIN_RESERVE_SECONDS": "1"})
    task = ledger.submit("sleep", seconds=60)
    ledger.await_state(task, "RUNNING")
    server.freeze()

    dispatcher.send(SIGTERM)

    assert dispatcher.wait(8) == 1
    server.thaw()
    assert ledger.state(task) == "RUNNING"
    run_dispatcher()
    assert ledger.await_end(task)["error"]["reason"] == "process exited before worker completion"
    ledger.reconcile()


def test_an_outcome_in_back_off_does_not_hold_the_exit_up_past_the_deadline(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher(env={"TALLY_DRAIN_SECONDS": "1", "TALLY_DRAIN_RESERVE_SECONDS": "0.5"})
    with fault(database, FINISH, raising("no")):
        task = ledger.submit("echo")
        wait_until(lambda: dispatcher.saw("error=no"), "the write is being tried")

        assert dispatcher.stop() == 1

    assert ledger.state(task) == "RUNNING"


def test_an_idle_dispatcher_leaves_with_status_0_while_the_database_is_there(
    database: Database, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher()

    assert dispatcher.stop() == 0

    assert database.rows("select stopped_why, stopped_at is not null from tally.dispatcher") == [("left", True)]


def test_under_a_flood_every_exit_0_leaves_no_running_row(
    ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    for _ in range(6):
        ledger.submit_many("echo", [{"effects": str(left)}] * 400)
        dispatcher = run_dispatcher("--slots", "8")
        before = ledger.states()["SUCCEEDED"]
        wait_until(lambda before=before: ledger.states()["SUCCEEDED"] > before + 50, "work is under way")  # type: ignore[misc]

        assert dispatcher.stop() == 0

        assert ledger.states()["RUNNING"] == 0
        done = {task for (task,) in ledger.database.rows("select id from tally.task where state = 'SUCCEEDED'")}
        assert set(effects(left)) == done
    ledger.reconcile(effects(left))


def test_every_wait_of_a_start_ends_at_sigterm(server: TestServer, run_dispatcher: RunDispatcher) -> None:
    server.stop()
    dispatcher = run_dispatcher(ready=False)
    wait_until(lambda: dispatcher.saw("database.away"), "the dispatcher waits for the database")

    assert dispatcher.stop() == 0

    assert not re.search("ready dispatcher", dispatcher.output)


def test_a_stop_that_comes_in_the_midst_of_an_unanswered_call_ends_by_the_deadline_too(
    server: TestServer, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher(env={"TALLY_DRAIN_SECONDS": "1", "TALLY_DRAIN_RESERVE_SECONDS": "0.5"})
    server.freeze()
    began = monotonic()

    dispatcher.send(SIGTERM)

    assert dispatcher.wait() == 1
    assert monotonic() - began < 2, "it waited for calls of 2.5 s"


def test_a_log_that_nobody_reads_holds_up_neither_the_work_nor_the_exit(database: Database, ledger: Ledger) -> None:
    env = environment({"DATABASE_URL": database.url})
    command = [sys.executable, "-m", "dispatcher", "--tasks", "tests.support.tasks"]
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        ledger.submit_many("raise", [{"text": "x" * 4000}] * 100)

        assert ledger.await_all() == {"FAILED": 100}

        process.send_signal(SIGTERM)
        assert process.wait(10) == 0
    ledger.reconcile()


@pytest.mark.parametrize("output", ["gone", "never there"])
def test_an_output_without_a_reader_does_not_change_the_exit_status(database: Database, output: str) -> None:
    env = environment({"DATABASE_URL": database.url})
    shell = (
        f"exec {sys.executable} -m dispatcher >&-"
        if output == "never there"
        else f"exec {sys.executable} -m dispatcher"
    )
    command = ["sh", "-c", shell]
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: database.value("select beat > 0 from tally.dispatcher"), "it has entered")
        assert process.stdout
        if output == "gone":
            assert process.stdout.readline()
        process.stdout.close()

        process.send_signal(SIGTERM)

        assert process.wait(10) == 0


def test_a_draining_dispatcher_beats_to_the_end(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    dispatcher = run_dispatcher()
    task = ledger.submit("gate", gate=str(gate))
    ledger.await_state(task, "RUNNING")
    run_dispatcher()
    dispatcher.send(SIGTERM)
    wait_until(lambda: dispatcher.saw("dispatcher.draining"), "the drain has begun")
    holder = "select beat from tally.dispatcher join tally.task on claimed_by = dispatcher.id"
    before = database.value(holder)

    wait_until(lambda: database.value(holder) > before + 3, "it goes on beating")
    gate.touch()

    assert dispatcher.wait() == 0
    assert ledger.task(task)["state"] == "SUCCEEDED"
    ledger.reconcile()

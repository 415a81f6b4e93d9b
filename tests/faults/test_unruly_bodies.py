"""What bodies do that no body should, by mistake as a rule: it costs them their own task at most."""

import re
from functools import partial
from pathlib import Path

import pytest

from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.processes import children_of, is_gone
from tests.support.program import RunDispatcher, RunProgram
from tests.support.unruly_tasks import LIMIT_SECONDS
from tests.support.waiting import wait_until

GARBAGE = {
    "a frame that is no message": "00000001ff",
    "a line of text": "68656c6c6f20776f726c640a",
    "a message without its members": "000000029102",
    "half a message, and another half": "000000019101",
    "a message out of turn": "000000029101",
}


@pytest.fixture
def run_unruly(run_program: RunProgram) -> RunDispatcher:
    """Start a dispatcher that knows unruly kinds besides the tests' kinds in processes."""
    return partial(run_program, "dispatcher", "--tasks", "tests.support.process_tasks", "tests.support.unruly_tasks")


def test_what_a_body_left_printing_in_a_session_of_its_own_is_not_listened_to_once_the_task_has_ended(
    ledger: Ledger, run_unruly: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "left"
    dispatcher = run_unruly("--slots", "2")

    end = ledger.await_end(ledger.submit("u.leave", left=str(left)))

    assert end["error"]["reason"] == "worker process exited with status 3"
    # It ends by writing to what nobody reads any more.
    wait_until(lambda: is_gone(int(left.read_text())), "it is gone")
    assert ledger.await_end(ledger.submit("p.echo"))["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0
    ledger.reconcile()


def test_bodies_that_print_without_end_keep_no_other_from_running_and_are_stopped_as_any(
    ledger: Ledger, database: Database, run_unruly: RunDispatcher, tmp_path: Path
) -> None:
    begun = [tmp_path / "1", tmp_path / "2"]
    dispatcher = run_unruly("--slots", "4")
    floods = [ledger.submit("u.flood", begun=str(each)) for each in begun]
    wait_until(lambda: all(each.exists() for each in begun), "they print")
    beat = "select beat from tally.dispatcher"
    later = database.value(beat) + 2

    ends = [ledger.await_end(ledger.submit("p.echo"), 5) for _ in range(3)]

    assert [end["state"] for end in ends] == ["SUCCEEDED"] * 3
    wait_until(lambda: database.value(beat) >= later, "it beats on", 5)
    for task in floods:
        ledger.cancel(task)
    assert {ledger.await_end(task)["error"]["detail"] for task in floods} == {"stopped by SIGTERM"}
    assert dispatcher.stop() == 0
    ledger.reconcile()


def test_no_line_is_lost_of_a_body_that_prints_faster_than_the_log_is_written(
    ledger: Ledger, run_unruly: RunDispatcher
) -> None:
    count = 60_000
    dispatcher = run_unruly("--slots", "2")

    task = ledger.submit("p.print", lines=count, text="n")

    assert ledger.await_end(task)["state"] == "SUCCEEDED"
    dispatcher.wait_for(f"line=n {count - 1}\n")
    told = re.findall(rf"body\.printed task={task} attempt=1 to=stdout line=n (\d+)\n", dispatcher.output)
    assert list(map(int, told)) == list(range(count))
    assert not dispatcher.saw("log.lost")


def test_a_callback_that_raises_at_a_cancel_ends_neither_its_body_nor_the_dispatcher(
    ledger: Ledger, run_unruly: RunDispatcher, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    dispatcher = run_unruly("--slots", "1")
    task = ledger.submit("u.told", begun=str(begun))
    wait_until(begun.exists, "its body runs")

    ledger.cancel(task)

    assert ledger.await_end(task)["state"] == "CANCELED"
    assert dispatcher.saw("body.untold\nTraceback")
    assert ledger.await_end(ledger.submit("p.echo"))["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0


def test_a_callback_that_raises_when_the_time_has_passed_does_not_end_the_supervisor(
    ledger: Ledger, run_unruly: RunDispatcher, tmp_path: Path
) -> None:
    dispatcher = run_unruly("--slots", "1")

    ends = [ledger.await_end(ledger.submit("u.told.limited", begun=str(tmp_path / "begun"))) for _ in range(2)]

    assert {end["error"]["reason"] for end in ends} == {f"time limit of {LIMIT_SECONDS} s passed"}
    assert dispatcher.saw("body.untold\nTraceback")
    assert ledger.await_end(ledger.submit("p.echo"))["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0


def test_what_a_body_writes_to_the_wire_fails_its_own_task_alone(
    ledger: Ledger, run_unruly: RunDispatcher, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    dispatcher = run_unruly("--slots", "2")
    beside = ledger.submit("p.gate", gate=str(gate))

    ends = {what: ledger.await_end(ledger.submit("u.wire", data=data)) for what, data in GARBAGE.items()}

    reasons = {what: end["error"]["reason"] for what, end in ends.items()}
    assert reasons == dict.fromkeys(GARBAGE, "worker process closed its connection")
    gate.touch()
    assert ledger.await_end(beside)["result"] == "through"
    assert dispatcher.stop() == 0
    ledger.reconcile()


@pytest.mark.parametrize("kind", ["u.log", "u.log.process"])
def test_no_body_fails_by_what_it_logs(ledger: Ledger, run_unruly: RunDispatcher, kind: str) -> None:
    dispatcher = run_unruly("--slots", "1")

    assert ledger.await_end(ledger.submit(kind))["result"] == "logged"

    assert dispatcher.saw("said by a strange name\n")
    assert dispatcher.stop() == 0


def test_signals_that_a_body_blocked_reach_the_next_one_in_its_process(
    ledger: Ledger, run_unruly: RunDispatcher
) -> None:
    dispatcher = run_unruly("--slots", "1")
    process = ledger.await_end(ledger.submit("u.block"))["result"]
    assert set(children_of(dispatcher.pid)) == {process}

    error = ledger.await_end(ledger.submit("p.limited", seconds=600))["error"]

    assert error["detail"] == "its body: stopped by SIGTERM"
    assert dispatcher.stop() == 0

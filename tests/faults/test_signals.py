"""Signals: one, two, three within a moment, and whichever thread the kernel gives them to."""

import ctypes
from pathlib import Path
from signal import SIGINT, SIGTERM
from threading import Thread
from time import monotonic

import pytest

from tests.support.ledger import Ledger
from tests.support.program import Program, RunDispatcher
from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.tasks import effects
from tests.support.waiting import wait_until


@pytest.mark.parametrize("module", ["falcon_app", "dispatcher"])
def test_a_signal_that_another_thread_takes_is_heard_too(service: Service, module: str) -> None:
    program = service.run_program(module)

    send_to_another_thread(program)

    assert program.wait(10) == 0
    service.reconcile()


def send_to_another_thread(program: Program) -> None:
    """Send SIGTERM to a thread that is not the main one, as the kernel may when signals come close together."""
    threads = {int(entry.name) for entry in Path(f"/proc/{program.pid}/task").iterdir()} - {program.pid}
    assert ctypes.CDLL(None).tgkill(program.pid, max(threads), SIGTERM) == 0


def test_a_second_signal_does_not_wait_for_the_deadline(ledger: Ledger, run_dispatcher: RunDispatcher) -> None:
    dispatcher = run_dispatcher(env={"TALLY_DRAIN_SECONDS": "600"})
    task = ledger.submit("sleep", seconds=60, stubborn=True)
    ledger.await_state(task, "RUNNING")

    dispatcher.send(SIGTERM)
    # The kernel makes one of signals that arrive together; the second is one that comes after the first was heard.
    dispatcher.wait_for("dispatcher.draining")
    dispatcher.send(SIGTERM)

    assert dispatcher.wait(10) == 1
    assert ledger.task(task)["error"]["reason"] == "dispatcher stopped before worker completion"
    ledger.reconcile()


def test_three_signals_at_once_end_it_at_once_with_everything_written(
    ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    dispatcher = run_dispatcher("--slots", "4", env={"TALLY_DRAIN_SECONDS": "600", "TALLY_DRAIN_RESERVE_SECONDS": "5"})
    tasks = ledger.submit_many("sleep", [{"seconds": 60, "stubborn": True, "effects": str(left)}] * 4)
    queued = ledger.submit("echo", effects=str(left))
    wait_until(lambda: len(effects(left)) == 4, "every slot runs a body")

    # Two kinds of signal, so that at least two are heard however close they come.
    for number in (SIGTERM, SIGINT, SIGTERM):
        dispatcher.send(number)

    assert dispatcher.wait(10) == 1
    reasons = {ledger.task(task)["error"]["reason"] for task in tasks}
    assert reasons == {"dispatcher stopped before worker completion"}
    assert ledger.state(queued) == "QUEUED"
    ledger.reconcile(effects(left))


def test_a_web_signaled_three_times_is_gone_at_once_and_says_that_somebody_was_not_answered(
    service: Service, server: TestServer
) -> None:
    service.start()
    with service.database.connect("test-holder") as holder:
        holder.execute("select pg_advisory_lock(tally.queue_lock_key('default'))")
        client = Thread(target=service.submit)
        client.start()
        waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        wait_until(lambda: service.database.value(waits), "a submit is being admitted")
        server.freeze()
        began = monotonic()

        for number in (SIGTERM, SIGINT, SIGTERM):
            service.web.send(number)

        assert service.web.wait() == 1
        assert monotonic() - began < 2.5
        server.thaw()
    client.join(10)
    assert [entry.status for entry in service.book] == [0]
    service.web = service.run_program("falcon_app")
    assert service.api.follow(service.accepted())["state"] == "SUCCEEDED"
    service.await_all()
    service.reconcile()

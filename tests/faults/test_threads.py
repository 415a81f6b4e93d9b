"""A thread of the dispatcher dies: the process ends with it, and the next one recovers what it held."""

from pathlib import Path

import pytest

from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.service import Service
from tests.support.tasks import effects
from tests.support.waiting import wait_until

EXITED = "process exited before worker completion"


@pytest.mark.parametrize("thread", ["MainThread", "session", "outcomes", "outcomes-2", "recovery"])
def test_a_dispatcher_without_one_of_its_threads_ends_with_1_and_its_tasks_are_recovered(
    service: Service, thread: str
) -> None:
    service.start("--slots", "2")
    working = service.accepted("gate")
    wait_until(lambda: service.started == [working], "the first body has started")

    ending = service.accepted("end_thread", thread=thread, seconds=600)

    assert service.dispatcher.wait() == 1
    assert {service.state(working), service.state(ending)} == {"RUNNING"}
    waiting = service.accepted()
    service.dispatcher = service.run_dispatcher()
    assert {service.api.follow(task)["error"]["reason"] for task in (working, ending)} == {EXITED}
    assert service.api.follow(waiting)["state"] == "SUCCEEDED"
    assert service.started == [working, ending, waiting]
    service.reconcile()


def test_a_slot_whose_thread_is_ended_by_what_its_body_raises_lives_on(
    ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    run_dispatcher("--slots", "1")

    end = ledger.await_end(ledger.submit("end_thread", thread="slot-0", effects=str(left)))

    assert (end["state"], end["error"]["reason"]) == ("FAILED", "task raised SystemExit")
    assert ledger.await_end(ledger.submit("echo", effects=str(left)))["state"] == "SUCCEEDED"
    ledger.reconcile(effects(left))

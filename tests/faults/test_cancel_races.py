"""A cancel against a claim, and against a finish: whoever is first, the task has one end, and the answers say which."""

from random import Random
from threading import Event
from time import monotonic
from typing import Any

import pytest

from tests.support.http import TERMINAL
from tests.support.service import Service, at_the_same_time
from tests.support.waiting import wait_until


def cancel_after(service: Service, pause: float) -> tuple[int, str]:
    """Submit, wait, cancel; return the task and the state the cancel was answered with."""
    task = service.accepted()
    Event().wait(pause)
    answer = service.api.cancel(task)
    assert answer.status in {202, 409}
    return task, answer.json()["state"] if answer.status == 202 else "ended"


def canceled_at_any_moment(service: Service, count: int) -> None:
    service.start("--slots", "4")
    moments = Random(25)
    canceled: dict[int, str] = {}

    def work() -> None:
        for _ in range(count // 8):
            task, answered = cancel_after(service, moments.uniform(0, 0.02))
            canceled[task] = answered

    at_the_same_time(*[work] * 8)
    service.await_all(60)

    started = set(service.started)
    for task, answered in canceled.items():
        state, _, error = service.row(task)
        if answered == "CANCELED":
            assert (state, error["detail"], task in started) == ("CANCELED", "not started", False)
        elif answered == "RUNNING":
            assert state == "CANCELED"
        else:
            assert (answered, state) == ("ended", "SUCCEEDED")
            assert task in started
    service.reconcile()


def test_a_cancel_at_any_moment_ends_a_task_unstarted_or_by_its_consent(service: Service) -> None:
    canceled_at_any_moment(service, 240)


@pytest.mark.long
def test_two_thousand_cancels_at_any_moment_end_their_tasks_unstarted_or_by_their_consent(service: Service) -> None:
    canceled_at_any_moment(service, 2000)


def test_an_accepted_cancel_is_followed_by_one_end_however_the_body_goes_on(service: Service) -> None:
    service.start("--slots", "1")
    task = service.accepted("sleep", seconds=0.8, stubborn=True)
    service.await_state(task, "RUNNING")
    assert service.api.cancel(task).json()["cancel_requested"] is True
    seen: list[tuple[Any, ...]] = []

    def looked() -> bool:
        document = service.api.task(task)
        seen.append((document["state"], document["cancel_requested"], document["result"]))
        return document["state"] in TERMINAL

    wait_until(looked, "the task has ended")
    end = monotonic() + 0.3
    while monotonic() < end:
        looked()

    assert set(seen) == {("RUNNING", True, None), ("CANCELED", True, None)}
    assert seen == sorted(seen, reverse=True), "an end is never taken back"
    assert service.row(task)[2] == {"reason": "canceled", "detail": "returned"}
    assert service.api.cancel(task).status == 409
    service.reconcile()

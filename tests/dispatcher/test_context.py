"""What a body may ask of its context, and who is told that it is to stop."""

import signal
from queue import SimpleQueue
from threading import Thread, Timer
from time import monotonic

import pytest

from dispatcher import Canceled, Context
from dispatcher.context import Cancel


def test_a_body_sees_which_task_it_runs() -> None:
    context = Context(7, 2, Cancel())

    assert (context.task_id, context.attempt, context.cancel_requested) == (7, 2, False)
    context.raise_if_canceled()
    assert repr(context) == "<Context task 7, attempt 2>"


def test_a_body_sees_that_its_cancel_was_accepted() -> None:
    cancel = Cancel()
    context = Context(7, 1, cancel)

    cancel.set()

    assert context.cancel_requested
    with pytest.raises(Canceled):
        context.raise_if_canceled()


def test_sleep_ends_early_by_raising_when_a_cancel_is_accepted() -> None:
    cancel = Cancel()
    soon = Timer(0.02, cancel.set)
    soon.start()
    began = monotonic()

    with pytest.raises(Canceled):
        Context(7, 1, cancel).sleep(30)

    assert monotonic() - began < 10
    soon.join()


def test_sleep_after_an_accepted_cancel_does_not_begin() -> None:
    cancel = Cancel()
    cancel.set()

    with pytest.raises(Canceled):
        Context(7, 1, cancel).sleep(0)


def test_sleep_without_a_cancel_just_returns() -> None:
    Context(7, 1, Cancel()).sleep(0.001)


def test_everybody_who_waits_for_a_cancel_is_told() -> None:
    cancel = Cancel()
    told: SimpleQueue[bool] = SimpleQueue()
    waiting = [Thread(target=lambda: told.put(cancel.wait(20))) for _ in range(4)]
    for thread in waiting:
        thread.start()

    cancel.set()

    for thread in waiting:
        thread.join(10)
    assert [told.get(timeout=1) for _ in waiting] == [True] * 4
    assert cancel.wait(20)


def test_a_cancel_that_races_with_who_begins_to_wait_is_never_missed() -> None:
    for _ in range(300):
        cancel = Cancel()
        told: SimpleQueue[bool] = SimpleQueue()
        waiting = Thread(target=lambda told=told, cancel=cancel: told.put(cancel.wait(20)))
        waiting.start()
        cancel.set()

        assert told.get(timeout=10)
        waiting.join(10)


def test_who_asked_to_be_told_is_told_once_it_is_set_and_at_once_where_it_is() -> None:
    cancel = Cancel()
    told: list[str] = []
    Context(7, 1, cancel).on_cancel(lambda: told.append("before"))
    assert told == []

    cancel.set()
    cancel.on_set(lambda: told.append("after"))

    assert told == ["before", "after"]


def test_who_has_taken_it_back_is_not_told() -> None:
    cancel = Cancel()
    told: list[str] = []
    undo = cancel.on_set(lambda: told.append("told"))

    undo()
    undo()
    cancel.set()

    assert told == []


def test_a_signal_handler_may_set_it_in_the_midst_of_a_wait() -> None:
    cancel = Cancel()
    before = signal.signal(signal.SIGALRM, lambda *_: cancel.set())
    began = monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)

        assert cancel.wait(30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert monotonic() - began < 10

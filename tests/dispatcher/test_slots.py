"""The bounded pool: counts from claim to release, and what is heard of a body."""

import ctypes
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Barrier, Event, Thread
from time import sleep
from typing import Any

import pytest

from dispatcher import Context, Task
from dispatcher.messages import Claim, Ending, Outcome
from dispatcher.slots import Slots
from sql.states import TaskState
from tests.dispatcher.given import LIMITS, Clock, a_claim, a_task
from tests.support.waiting import wait_until


def tasks(**bodies: Callable[..., object]) -> dict[str, Task]:
    """Return kinds of these names, with nothing declared."""
    return {kind: a_task(kind, body) for kind, body in bodies.items()}


class Pool:
    """Slots, their outcomes and unsure claims, and bodies that wait for a gate."""

    def __init__(self, count: int, sure_seconds: float = 3.0) -> None:
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self.unsure: SimpleQueue[Claim] = SimpleQueue()
        self.begun: SimpleQueue[int] = SimpleQueue()
        self.gate = Event()
        self.clock = Clock()
        self.slots = Slots(
            count,
            tasks(echo=self._echo, wait=self._wait, sleep=self._sleep),
            LIMITS,
            sure_seconds,
            on_end=self.outcomes.put,
            on_unsure=self.unsure.put,
            clock=self.clock,
        )

    def start(self, task: int, kind: str = "echo", age: float = 0.0) -> None:
        self.slots.start(a_claim(task, kind=kind, known_at=self.clock.now - age))

    def next_outcome(self) -> Outcome:
        return self.outcomes.get(timeout=10)

    def _echo(self, input: dict[str, Any], context: Context) -> object:  # noqa: A002, ARG002
        self.begun.put(context.task_id)
        return context.task_id

    def _wait(self, input: dict[str, Any], context: Context) -> object:  # noqa: A002, ARG002
        self.begun.put(context.task_id)
        assert self.gate.wait(20)
        return "waited"

    def _sleep(self, input: dict[str, Any], context: Context) -> object:  # noqa: A002, ARG002
        self.begun.put(context.task_id)
        context.sleep(20)
        return "slept"


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(3)
    yield made
    made.gate.set()
    made.slots.cancel_all()


def is_empty(queue: SimpleQueue[Any]) -> bool:
    try:
        queue.get(timeout=0.05)
    except Empty:
        return True
    return False


def test_a_slot_is_busy_from_the_claim_until_it_is_released(pool: Pool) -> None:
    assert pool.slots.free == 3

    pool.start(7, "wait")
    assert (pool.slots.free, pool.slots.running()) == (2, 1)

    pool.gate.set()
    assert pool.next_outcome().id == 7
    assert (pool.slots.free, pool.slots.busy, pool.slots.running()) == (2, 1, 0)
    assert pool.slots.attempts() == {7: 1}

    pool.slots.release([(7, 1)])
    assert (pool.slots.free, pool.slots.busy) == (3, 0)


def test_as_many_bodies_run_at_once_as_there_are_slots(pool: Pool) -> None:
    for task in (1, 2, 3):
        pool.start(task, "wait")

    assert {pool.begun.get(timeout=10) for _ in range(3)} == {1, 2, 3}


def test_a_body_that_blocks_keeps_no_claim_that_came_with_it_waiting() -> None:
    pool = Pool(9)
    for task in range(1, 9):
        pool.start(task, "wait")
    pool.start(9)

    assert pool.next_outcome().id == 9
    assert {pool.begun.get(timeout=10) for _ in range(9)} == set(range(1, 10))
    pool.gate.set()


def test_a_slot_that_was_kept_from_its_line_by_a_body_goes_on_with_it() -> None:
    pool = Pool(1)
    for task in (1, 2, 3):
        pool.start(task, "wait")
    assert pool.begun.get(timeout=10) == 1

    pool.gate.set()

    assert [pool.next_outcome().id for _ in range(3)] == [1, 2, 3]


def test_short_bodies_run_in_a_row_on_few_threads() -> None:
    threads: set[int] = set()
    outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def short(input: dict[str, Any], context: Context) -> object:  # noqa: A002
        threads.add(threading.get_ident())
        return None

    slots = Slots(200, tasks(short=short), LIMITS, 60, on_end=outcomes.put, on_unsure=lambda _: None)
    with undisturbed():
        for task in range(200):
            slots.start(a_claim(task, kind="short"))
        for _ in range(200):
            outcomes.get(timeout=20)

    assert len(threads) < 10


def test_a_refused_task_holds_a_slot_and_runs_no_body(pool: Pool) -> None:
    pool.slots.hold(7)

    assert (pool.slots.free, pool.slots.running(), pool.slots.attempts()) == (2, 0, {})
    assert pool.slots.give_up() == []
    pool.slots.cancel([7])
    pool.slots.release([(7, 0)])
    assert pool.slots.free == 3


def test_a_release_of_what_is_not_held_changes_nothing(pool: Pool) -> None:
    pool.slots.release([(7, 1), (8, 1)])

    assert pool.slots.free == 3


def test_an_attempt_runs_beside_the_one_before_whose_end_is_not_acknowledged_yet(pool: Pool) -> None:
    pool.start(7)
    assert pool.next_outcome().key == (7, 1)

    pool.slots.start(a_claim(7, attempt=2, kind="wait", known_at=pool.clock.now))

    assert [pool.begun.get(timeout=10) for _ in range(2)] == [7, 7]
    assert (pool.slots.busy, pool.slots.running(), pool.slots.attempts()) == (2, 1, {7: 2})
    pool.slots.release([(7, 1)])
    assert (pool.slots.busy, pool.slots.attempts()) == (1, {7: 2})
    pool.gate.set()
    assert pool.next_outcome().key == (7, 2)


def test_a_body_can_be_started_again_and_again_in_the_same_slot(pool: Pool) -> None:
    for _ in range(3):
        pool.start(7)
        assert pool.next_outcome().id == 7
        pool.slots.release([(7, 1)])

    assert pool.slots.free == 3


def test_a_claim_that_lay_too_long_is_asked_about_and_not_begun(pool: Pool) -> None:
    pool.start(7, age=3.1)

    assert pool.unsure.get(timeout=10).id == 7
    assert pool.slots.free == 2
    assert is_empty(pool.begun)


def test_a_claim_begins_once_it_is_sure_again_in_the_slot_it_has(pool: Pool) -> None:
    pool.start(7, age=3.1)
    pool.unsure.get(timeout=10)

    pool.start(7)

    assert pool.next_outcome().state is TaskState.SUCCEEDED
    assert pool.slots.busy == 1


def test_a_claim_just_young_enough_begins(pool: Pool) -> None:
    pool.start(7, age=2.9)

    assert pool.next_outcome().state is TaskState.SUCCEEDED


def test_a_cancel_before_the_body_begins_means_not_started() -> None:
    pool = Pool(1)
    pool.start(1, "wait")
    pool.begun.get(timeout=10)
    pool.start(2)

    pool.slots.cancel([2])
    pool.gate.set()

    outcomes = {outcome.id: outcome.ending for outcome in (pool.next_outcome(), pool.next_outcome())}
    assert outcomes == {1: Ending.RETURNED, 2: Ending.NOT_STARTED}


def test_a_cancel_reaches_the_running_body_and_only_that_one(pool: Pool) -> None:
    pool.start(1, "sleep")
    pool.start(2, "wait")
    assert {pool.begun.get(timeout=10) for _ in range(2)} == {1, 2}

    pool.slots.cancel([1, 99])

    assert pool.next_outcome().ending is Ending.STOPPED
    assert pool.slots.running() == 1


def test_cancel_all_raises_every_flag(pool: Pool) -> None:
    for task in (1, 2, 3):
        pool.start(task, "sleep")
        pool.begun.get(timeout=10)

    pool.slots.cancel_all()

    assert {pool.next_outcome().ending for _ in range(3)} == {Ending.STOPPED}


def test_what_was_given_up_is_not_heard_any_more(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    pool.start(1, "wait")
    pool.begun.get(timeout=10)

    assert [(claim.id, began) for claim, began, _ in pool.slots.give_up()] == [(1, True)]
    assert pool.slots.running() == 0
    assert pool.slots.give_up() == []

    pool.gate.set()
    wait_until(lambda: "body.unheard task=1" in caplog.text, "the body has ended")
    assert is_empty(pool.outcomes)
    assert pool.slots.attempts() == {1: 1}


def test_what_was_given_up_before_it_began_never_begins(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool(1)
    pool.start(1, "wait")
    pool.begun.get(timeout=10)
    pool.start(2)

    assert [(claim.id, began) for claim, began, _ in pool.slots.give_up()] == [(1, True), (2, False)]

    pool.gate.set()
    wait_until(lambda: "body.unheard task=1" in caplog.text, "the first body has ended")
    wait_until(lambda: not pool.slots._waiting, "the second claim was passed over")
    assert is_empty(pool.begun)


def test_a_claim_that_comes_after_giving_up_never_begins(pool: Pool) -> None:
    assert pool.slots.give_up() == []

    pool.start(1)

    assert [(claim.id, began) for claim, began, _ in pool.slots.give_up()] == [(1, False)]
    assert is_empty(pool.begun)


def test_a_body_that_has_ended_is_not_given_up(pool: Pool) -> None:
    pool.start(1)
    pool.next_outcome()

    wait_until(lambda: pool.slots.running() == 0, "the body has ended")
    assert pool.slots.give_up() == []


def test_a_slot_outlives_whatever_a_body_raises() -> None:
    outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def leave(input: dict[str, Any], context: Context) -> object:  # noqa: A002
        raise SystemExit(1)

    slots = Slots(1, tasks(leave=leave), LIMITS, 60, on_end=outcomes.put, on_unsure=lambda _: None)
    for task in (1, 2):
        slots.start(a_claim(task, kind="leave"))

    assert [outcomes.get(timeout=10).id for _ in range(2)] == [1, 2]


def test_many_threads_start_and_release_and_the_count_is_right() -> None:
    pool = Pool(8)
    together = Barrier(8)

    def work(first: int) -> None:
        together.wait(10)
        for task in range(first, first + 100):
            pool.start(task)
            pool.slots.cancel([task])
            pool.slots.release([pool.next_outcome().key])

    workers = [Thread(target=work, args=(100 * number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)

    assert (pool.slots.free, pool.slots.busy, pool.slots.running()) == (8, 0, 0)


def test_its_repr_shows_the_counts(pool: Pool) -> None:
    pool.slots.hold(1)

    assert repr(pool.slots) == "<Slots 1/3 busy>"


def test_a_slot_outlives_an_exception_whose_class_cannot_be_read() -> None:
    outcomes: SimpleQueue[Outcome] = SimpleQueue()

    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise ZeroDivisionError

    class Unreadable(Exception, metaclass=Nameless):
        pass

    def fail(input: dict[str, Any], context: Context) -> object:  # noqa: A002
        raise Unreadable

    slots = Slots(1, tasks(fail=fail), LIMITS, 60, on_end=outcomes.put, on_unsure=lambda _: None)
    for task in (1, 2):
        slots.start(a_claim(task, kind="fail"))

    assert [outcomes.get(timeout=10).state for _ in range(2)] == ["FAILED", "FAILED"]


@contextmanager
def undisturbed() -> Iterator[None]:
    """While inside, no thread is interrupted for another that wants to run."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(20)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def throw(thread: Thread) -> None:
    """Throw SystemExit into a thread, as a body's own timer might, too late."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def slot_threads() -> set[Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("slot-")}


@contextmanager
def thrown_at(threads: list[Thread]) -> Iterator[None]:
    """While inside, throw into each of them at random moments."""
    over = Event()

    def run() -> None:
        while not over.wait(random.uniform(0, 0.001)):
            throw(random.choice(threads))

    thrower = Thread(target=run)
    thrower.start()
    try:
        yield
    finally:
        over.set()
        thrower.join(10)


def test_a_slot_outlives_what_is_thrown_at_it_while_it_waits() -> None:
    before = slot_threads()
    pool = Pool(1)
    (slot,) = slot_threads() - before

    for task in (1, 2, 3):
        throw(slot)
        pool.start(task)

        assert pool.next_outcome().id == task
    assert slot.is_alive()


def test_what_is_thrown_at_a_slot_while_its_body_runs_fails_the_task_by_name() -> None:
    before = slot_threads()
    pool = Pool(1)
    (slot,) = slot_threads() - before
    pool.start(1, "wait")
    pool.begun.get(timeout=10)

    throw(slot)
    pool.gate.set()

    outcome = pool.next_outcome()
    assert outcome.state is TaskState.FAILED
    assert outcome.error is not None
    assert "task raised SystemExit" in outcome.error
    pool.start(2)
    assert pool.next_outcome().state is TaskState.SUCCEEDED


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may hit a weak reference's callback
def test_whenever_something_is_thrown_at_slots_every_claim_has_one_outcome_and_began_once() -> None:
    before = slot_threads()
    pool = Pool(4)
    slots = list(slot_threads() - before)
    tasks = range(1, 2001)
    with thrown_at(slots):
        for task in tasks:
            pool.start(task, age=3.1 if task % 5 == 0 else 0)
            sleep(0.0001)
            while not pool.unsure.empty():
                pool.slots.start(a_claim(pool.unsure.get().id, known_at=pool.clock.now))
        wait_until(
            lambda: pool.slots.running() == len(unsure_again(pool)), "every body has ended", 20, lambda: pool.slots
        )

    ended: dict[int, set[Outcome]] = {}
    while not pool.outcomes.empty():
        outcome = pool.outcomes.get()
        ended.setdefault(outcome.id, set()).add(outcome)
    assert set(ended) == set(tasks)
    assert {len(outcomes) for outcomes in ended.values()} == {1}
    begun = [pool.begun.get() for _ in range(pool.begun.qsize())]
    assert len(begun) == len(set(begun))
    assert all(slot.is_alive() for slot in slots)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may hit a weak reference's callback
def test_whatever_is_thrown_at_slots_no_claim_waits_behind_a_body() -> None:
    before = slot_threads()
    pool = Pool(4)
    slots = list(slot_threads() - before)
    for first in range(1, 900, 3):
        pool.gate.clear()
        for slot in random.choices(slots, k=random.randint(0, 4)):
            throw(slot)
        pool.start(first, "wait")
        pool.start(first + 1)
        pool.start(first + 2)
        ended = {pool.next_outcome().id for _ in range(2)}
        # What was thrown may have met the first one's body, which has ended then.
        assert ended == {first + 1, first + 2} or first in ended
        pool.gate.set()
        ended.add(pool.next_outcome().id)
        assert ended == {first, first + 1, first + 2}
    assert all(slot.is_alive() for slot in slots)


def unsure_again(pool: Pool) -> list[int]:
    """Start what is unsure again; return what was."""
    again = []
    while not pool.unsure.empty():
        again.append(pool.unsure.get().id)
        pool.slots.start(a_claim(again[-1], known_at=pool.clock.now))
    return again


def test_a_claim_that_is_sure_again_does_not_begin_where_its_slot_was_given_back(pool: Pool) -> None:
    pool.start(7, age=3.1)
    claim = pool.unsure.get(timeout=10)
    pool.slots.release([(7, 1)])

    pool.slots.resume(claim._replace(known_at=pool.clock.now))
    pool.start(8)

    assert pool.next_outcome().id == 8
    assert pool.begun.get(timeout=10) == 8
    assert pool.begun.empty()

"""Bodies in children, by the supervisor and the slots together, without a database."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

import pytest

from dispatcher import brood, supervisor, wire
from dispatcher.brood import Bounds
from dispatcher.children import Child
from dispatcher.clock import clock_with_sleep
from dispatcher.held import Held
from dispatcher.kinds import KINDS, Task
from dispatcher.messages import Claim, Ending, Outcome
from dispatcher.slots import Slots
from dispatcher.supervisor import Supervisor, is_needed
from sql.states import TaskState
from tests.dispatcher.given import LIMITS, a_claim, a_task
from tests.support import process_tasks
from tests.support.processes import is_gone
from tests.support.waiting import outlast, wait_until

SETUP = wire.Setup(
    ["tests.support.process_tasks"],
    [os.fsencode(place) for place in sys.path],
    logging.INFO,
    10,
    LIMITS.max_depth,
    LIMITS.max_result_bytes,
    LIMITS.max_detail_bytes,
)
IN_PROCESSES = {kind: KINDS[kind] for kind in ("p.echo", "p.sleep")}


class Pool:
    """Slots whose bodies run in children; one processor, so that there is one child at first."""

    def __init__(self, kinds: dict[str, Task], setup: wire.Setup = SETUP) -> None:
        self.outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self.unsure: SimpleQueue[Claim] = SimpleQueue()
        self.turns = 0
        self.supervisor = Supervisor(
            kinds,
            setup,
            LIMITS,
            Bounds(slots=4, processors=1, tasks=100, resident_bytes=2**30, grace_seconds=1.0),
            begin=lambda held: self.slots.begin(held),  # noqa: PLW0108 - the slots are made below
            unsure=lambda held: self.slots.unsure(held),  # noqa: PLW0108 - the same
            end=lambda held, outcome: self.slots.end(held, outcome),  # noqa: PLW0108 - the same
            turn=self._count,
            turn_seconds=600,
        )
        self.slots = Slots(
            4,
            kinds,
            LIMITS,
            60.0,
            supervisor=self.supervisor,
            on_end=self.outcomes.put,
            on_unsure=self._ask,
        )
        self.thread = Thread(target=self.supervisor.run, daemon=True)
        self.thread.start()

    def _count(self) -> None:
        self.turns += 1

    def _ask(self, claim: Claim) -> None:
        """As the loop does: the claim is current."""
        self.unsure.put(claim)
        self.slots.resume(claim._replace(known_at=clock_with_sleep()))

    @property
    def children(self) -> list[Child]:
        return list(self.supervisor._brood.children)

    def start(self, task: int, kind: str = "p.echo", age: float = 0.0, given: str = "{}") -> None:
        self.slots.start(a_claim(task, kind=kind, input=given, known_at=clock_with_sleep() - age))

    def next_outcome(self) -> Outcome:
        return self.outcomes.get(timeout=20)

    def stop(self) -> None:
        children = self.children
        self.supervisor.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()
        assert all(is_gone(child.pid) for child in children)


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(IN_PROCESSES)
    yield made
    made.stop()


def test_nothing_is_supervised_where_no_kind_has_a_process_or_a_time_limit() -> None:
    plain, limited = a_task("plain", print), a_task("limited", print, time_limit_seconds=1.0)
    assert not is_needed({"plain": plain})
    assert is_needed({"plain": plain, "limited": limited})
    assert is_needed({"p": a_task("p", print, slot="process")})


def test_where_there_are_time_limits_alone_no_child_is_started() -> None:
    pool = Pool({"t.limited": KINDS["t.limited"]})

    pool.start(1, "t.limited", given='{"seconds": 600}')

    outcome = pool.next_outcome()
    assert (outcome.state, outcome.ending) == (TaskState.FAILED, Ending.STOPPED)
    assert outcome.error is not None
    assert f"time limit of {process_tasks.LIMIT_SECONDS} s passed" in outcome.error
    assert pool.children == []
    pool.stop()


def test_while_nothing_happens_the_supervisor_makes_no_turn(pool: Pool) -> None:
    pool.start(1)
    pool.next_outcome()
    wait_until(lambda: repr(pool.supervisor) == "<Supervisor 1 children, 1 free, 0 waiting>", "the child is free")
    outlast(0.5)
    turns = pool.turns

    outlast(1)

    assert pool.turns == turns


def test_short_bodies_wait_for_one_child_and_long_ones_get_one_each(pool: Pool) -> None:
    for task in range(1, 4):
        pool.start(task)
    for _ in range(3):
        pool.slots.release([pool.next_outcome().key])
    assert len(pool.children) == 1

    for task in range(4, 8):
        pool.start(task, "p.sleep", given='{"seconds": 600}')

    wait_until(
        lambda: sum(child.body is not None for child in pool.children) == 4, "each runs", seen=lambda: pool.children
    )


def test_a_claim_that_waited_too_long_for_a_child_is_asked_about_and_begins_once_it_is_sure(pool: Pool) -> None:
    pool.start(7, age=60.1)

    assert pool.unsure.get(timeout=20).id == 7
    assert pool.next_outcome().state is TaskState.SUCCEEDED
    assert pool.slots.free == 3


def test_a_cancel_of_a_claim_that_waits_for_a_child_ends_it_not_started_at_once() -> None:
    # Its one child is never ready.
    pool = Pool(IN_PROCESSES, wire.Setup(["no_such_module"], [], logging.INFO, 10, 64, 2**20, 2**14))
    pool.start(7)

    pool.slots.cancel([7])

    assert pool.next_outcome().ending is Ending.NOT_STARTED
    assert pool.slots.running() == 0
    pool.stop()


def test_what_keeps_children_from_starting_is_told_and_costs_no_claim_its_slot() -> None:
    pool = Pool(IN_PROCESSES, wire.Setup(["no_such_module"], [], logging.INFO, 10, 64, 2**20, 2**14))
    pool.start(7)

    wait_until(lambda: "no_such_module" in (pool.supervisor.trouble or ""), "it tells its trouble")

    assert (pool.slots.running(), pool.slots.free) == (1, 3)
    pool.stop()


def test_a_child_that_hangs_while_it_starts_is_ended_and_told_and_costs_no_claim_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(brood, "START_SECONDS", 0.5)
    pool = Pool(IN_PROCESSES, wire.Setup(["hangs"], [os.fsencode(tmp_path), *SETUP.path], logging.INFO, 10, 64, 9, 9))
    pool.start(7)
    hanging = wait_until(lambda: pool.children, "it is started")[0]

    wait_until(
        lambda: f"process {hanging.pid}" in (pool.supervisor.trouble or ""),
        "it tells its trouble",
        seen=lambda: pool.supervisor.trouble,
    )

    assert is_gone(hanging.pid)
    assert (pool.slots.running(), pool.slots.free) == (1, 3)
    pool.stop()


def test_bodies_that_are_given_up_are_killed_and_gone_and_what_waits_never_begins(pool: Pool) -> None:
    pool.start(1, "p.sleep", given='{"seconds": 600}')
    wait_until(lambda: any(child.body for child in pool.children), "its body runs")
    children = pool.children
    pool.start(2, "p.sleep", given='{"seconds": 600}')

    left = pool.slots.give_up()

    assert [(claim.id, *how) for claim, *how in left] == [(1, True, False), (2, False, False)]
    assert all(is_gone(child.pid) for child in children)
    assert pool.outcomes.empty()


def test_a_body_that_was_given_up_may_run_on_where_its_child_was_not_seen_to_go(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.start(1, "p.sleep", given='{"seconds": 600}')
    wait_until(lambda: any(child.body for child in pool.children), "its body runs")
    pool.start(2, "p.sleep", given='{"seconds": 600}')
    with monkeypatch.context() as patch:
        # As if it sat in the midst of a call to a device, where no signal reaches it.
        patch.setattr(Child, "kill", lambda _: None)
        patch.setattr(Child, "reap", lambda _: -9)
        patch.setattr(supervisor, "GONE_SECONDS", 0.1)

        left = pool.slots.give_up()

    assert [(claim.id, *how) for claim, *how in left] == [(1, True, True), (2, False, False)]


def test_a_cancel_may_come_while_claims_do() -> None:
    pool = Pool(IN_PROCESSES, wire.Setup(["no_such_module"], [], logging.INFO, 10, 64, 2**20, 2**14))
    canceled = Held(a_claim(-1))
    is_over = Event()

    def claim() -> None:
        task = 0
        while not is_over.is_set():
            task += 1
            pool.supervisor.take(Held(a_claim(task)))
            while len(pool.supervisor._line) > 500 and not is_over.is_set():
                pool.supervisor._line.popleft()

    claiming = Thread(target=claim, daemon=True)
    claiming.start()
    try:
        for _ in range(10):
            # So many that the interpreter lets the other thread run in the midst of one.
            pool.supervisor.cancel([canceled] * 2000)
            wait_until(lambda: not pool.supervisor._canceled, "all are seen to", 5)
    finally:
        is_over.set()
        claiming.join(10)
    pool.stop()


def test_a_claim_that_was_given_to_a_child_as_it_died_began_nowhere_and_runs_in_the_next(pool: Pool) -> None:
    for turn in range(5):
        pool.start(2 * turn)
        assert pool.next_outcome().id == 2 * turn
        (killed,) = pool.children
        killed.kill()

        pool.start(2 * turn + 1)

        outcome = pool.next_outcome()
        assert (outcome.id, outcome.state) == (2 * turn + 1, TaskState.SUCCEEDED)
        wait_until(lambda: killed not in pool.children, "the dead one is buried")  # noqa: B023 - asked at once
        pool.slots.release([(2 * turn, 1), (2 * turn + 1, 1)])

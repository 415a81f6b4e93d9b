"""The bounded pool: each slot runs one body at a time, and is busy from the claim to the acknowledged outcome.

A slot is a count before it is a thread: `free` is how many more tasks this dispatcher may claim. A claim takes
one (`start`), so does a refusal that is being written (`hold`), and only `release` gives it back, once what
became of the task is acknowledged. Bodies run on as many daemon threads. Slots know no SQL: what a body ended in
goes to `on_end`, and a claim that lay here too long to be sure of goes to `on_unsure` instead of starting.

Claims wait in one line, and whoever is awake takes the next: short bodies run in a row on one thread, for which nobody
else has to wake. A thread rings for another where a claim waits behind the body that it is about to run, unless one was
rung for and has not come yet. So whatever waits is looked at as soon as a thread is free, however long the others take,
and however many claims come, one thread at a time is on its way.

A body may have a timer throw into its thread, and that may come too late: after the body, or at the slot while it
waits. Each step of a slot can therefore be done again, and what is thrown between two of them ends neither the slot nor
the claim that it has in hand.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from threading import Lock, Thread, get_ident
from typing import NoReturn

from dispatcher.clock import clock_with_sleep
from dispatcher.endings import Limits, raised, run_body
from dispatcher.kinds import Body, Cancel
from dispatcher.messages import Claim, Outcome

log = logging.getLogger("tally.slots")


class _Held:
    """A claim in a slot. `thread`: where its body began. `ended`: its body has, or was given up."""

    __slots__ = ("cancel", "claim", "ended", "outcome", "thread")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.cancel = Cancel()
        self.thread: int | None = None
        self.outcome: Outcome | None = None
        self.ended = False


class Slots:
    """`count` slots. Every method may be called from any thread."""

    def __init__(
        self,
        count: int,
        kinds: Mapping[str, Body],
        limits: Limits,
        sure_seconds: float,
        *,
        on_end: Callable[[Outcome], None],
        on_unsure: Callable[[Claim], None],
        clock: Callable[[], float] = clock_with_sleep,
    ) -> None:
        self._count = count
        self._kinds = kinds
        self._limits = limits
        self._sure_seconds = sure_seconds
        self._on_end = on_end
        self._on_unsure = on_unsure
        self._clock = clock
        self._held: dict[int, _Held | None] = {}
        self._gave_up = False
        self._lock = Lock()
        self._waiting: deque[_Held] = deque()
        # For the interpreter one step takes a claim and has it in hand: what is thrown cannot fall between the two.
        self._arriving = iter(self._waiting.popleft, None)
        self._bell = Lock()
        self._bell.acquire()
        self._rung = False
        for number in range(count):
            Thread(target=self._run, name=f"slot-{number}", daemon=True).start()

    def __repr__(self) -> str:
        return f"<Slots {len(self._held)}/{self._count} busy>"

    @property
    def free(self) -> int:
        return self._count - len(self._held)

    @property
    def half(self) -> int:
        return (self._count + 1) // 2

    @property
    def busy(self) -> int:
        return len(self._held)

    def start(self, claim: Claim) -> None:
        """Take a slot, or go on in the one that the claim has, and run its body there."""
        with self._lock:
            held = self._held.get(claim.id)
            if held is None:
                held = _Held(claim)
                self._held[claim.id] = held
            held.claim = claim
            if not self._gave_up:
                self._waiting.append(held)
                self._ring()

    def resume(self, claim: Claim) -> None:
        """Run the body of a claim that was not sure, now that it is; not where its slot was given back meanwhile."""
        with self._lock:
            held = self._held.get(claim.id)
            if held is not None and not self._gave_up:
                held.claim = claim
                self._waiting.append(held)
                self._ring()

    def hold(self, task_id: int) -> None:
        """Take a slot for a task that runs no body."""
        with self._lock:
            self._held.setdefault(task_id, None)

    def release(self, task_ids: Iterable[int]) -> None:
        """Give back the slots of tasks whose end is acknowledged."""
        with self._lock:
            for task_id in task_ids:
                self._held.pop(task_id, None)

    def attempts(self) -> dict[int, int]:
        """Return the claims held: task id to attempt."""
        with self._lock:
            return {held.claim.id: held.claim.attempt for held in self._held.values() if held is not None}

    def running(self) -> int:
        """How many bodies have neither ended nor been given up."""
        with self._lock:
            return sum(held is not None and not held.ended for held in self._held.values())

    def cancel(self, task_ids: Iterable[int]) -> None:
        """Raise the cancel flag of each of these tasks that is here."""
        with self._lock:
            chosen = [held for task_id in task_ids if (held := self._held.get(task_id)) is not None]
        for held in chosen:
            held.cancel.set()

    def cancel_all(self) -> None:
        self.cancel(self.attempts())

    def give_up(self) -> list[tuple[Claim, bool]]:
        """Return the claims whose bodies have not ended, and whether they began.

        No body begins any more, and what those that have still do is not heard.
        """
        with self._lock:
            self._gave_up = True
            left = [held for held in self._held.values() if held is not None and not held.ended]
            for held in left:
                held.ended = True
        return [(held.claim, held.thread is not None) for held in left]

    def _run(self) -> None:
        hand: list[_Held] = []
        thrown: BaseException | None = None
        while True:
            try:
                self._serve(hand, thrown)
            except BaseException as error:  # noqa: BLE001 - thrown while it left the handler of what was thrown before
                # A thread that ended between the bell and its first step would have all others wait for it.
                thrown = error

    def _serve(self, hand: list[_Held], thrown: BaseException | None) -> NoReturn:
        while True:
            try:
                while True:
                    if hand and thrown is not None:
                        self._go_on(hand[0], thrown)
                        hand.clear()
                    thrown = None
                    self._run_what_waits(hand)
                    self._bell.acquire()
            except BaseException as error:  # noqa: BLE001 - thrown at this thread, by whatever ran or runs in the process
                thrown = error

    def _ring(self) -> None:
        """Wake a thread, unless one is on its way; with the lock held."""
        if not self._rung:
            # Something thrown between the two lines leaves a thread woken for nothing; the other way round, none.
            if self._bell.locked():
                self._bell.release()
            self._rung = True

    def _run_what_waits(self, hand: list[_Held]) -> None:
        with self._lock:
            self._rung = False
        while self._take(hand):
            self._run_one(hand[0])
            hand.clear()

    def _take(self, hand: list[_Held]) -> bool:
        try:
            hand.extend(islice(self._arriving, 1))
        except IndexError:
            # There was none; or this very error was thrown at us just after we took one.
            return bool(hand)
        return True

    def _run_one(self, held: _Held) -> None:
        with self._lock:
            if held.ended or held.thread is not None:
                return
            if self._waiting:
                self._ring()
            sure = self._clock() - held.claim.known_at <= self._sure_seconds
            if sure:
                held.thread = get_ident()
        if not sure:
            self._on_unsure(held.claim)
            return
        held.outcome = run_body(held.claim, held.cancel, self._kinds, self._limits)
        self._end(held, held.outcome)

    def _go_on(self, held: _Held, thrown: BaseException) -> None:
        """Something was thrown at this slot: begin what has not begun, end what has."""
        if held.thread is None:
            self._run_one(held)
        elif held.thread == get_ident() and not held.ended:
            held.outcome = held.outcome or raised(held.claim, thrown, held.cancel, self._limits)
            self._end(held, held.outcome)

    def _end(self, held: _Held, outcome: Outcome) -> None:
        with self._lock:
            heard = not held.ended
            if heard:
                # Told before it is marked: to be told twice of one outcome is harmless, never would keep the slot.
                self._on_end(outcome)
                held.ended = True
        if not heard:
            log.warning("body.unheard task=%d attempt=%d", held.claim.id, held.claim.attempt)

"""The bounded pool: each slot runs one body at a time, and is busy from the claim to the acknowledged outcome.

A slot is a count before it is a thread: `free` is how many more tasks this dispatcher may claim. A claim takes
one (`start`), so does a refusal that is being written (`hold`), and only `release` gives it back, once what
became of the task is acknowledged. Bodies run on as many daemon threads. Slots know no SQL: what a body ended in
goes to `on_end`, and a claim that lay here too long to be sure of goes to `on_unsure` instead of starting. Bodies of
kinds whose slots are processes are the supervisor's to run, and to stop (see `dispatcher.supervisor`); it asks here
whether one may begin, and tells what it ended in.

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
from dispatcher.held import Held
from dispatcher.kinds import Task
from dispatcher.messages import Claim, Key, Outcome
from dispatcher.supervisor import Supervisor

log = logging.getLogger("tally.slots")


class Slots:
    """`count` slots. Every method may be called from any thread."""

    def __init__(
        self,
        count: int,
        kinds: Mapping[str, Task],
        limits: Limits,
        sure_seconds: float,
        *,
        supervisor: Supervisor | None = None,
        on_end: Callable[[Outcome], None],
        on_unsure: Callable[[Claim], None],
        clock: Callable[[], float] = clock_with_sleep,
    ) -> None:
        """Without a `supervisor` no kind may have slots that are processes, or a time limit."""
        self._count = count
        self._kinds = kinds
        self._supervisor = supervisor
        self._in_processes = frozenset(kind for kind, task in kinds.items() if task.options.slot == "process")
        self._time_limits = {
            kind: task.options.time_limit_seconds
            for kind, task in kinds.items()
            if task.options.time_limit_seconds is not None
        }
        self._limits = limits
        self._sure_seconds = sure_seconds
        self._on_end = on_end
        self._on_unsure = on_unsure
        self._clock = clock
        # An attempt is held until its end is acknowledged; the next one of the task may be claimed before that.
        self._held: dict[Key, Held | None] = {}
        self._gave_up = False
        self._lock = Lock()
        self._waiting: deque[Held] = deque()
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
            held = self._held.get(claim.key)
            if held is None:
                held = Held(claim)
                self._held[claim.key] = held
            held.claim = claim
            if not self._gave_up:
                self._line_up(held)

    def resume(self, claim: Claim) -> None:
        """Run the body of a claim that was not sure, now that it is; not where its slot was given back meanwhile."""
        with self._lock:
            held = self._held.get(claim.key)
            if held is not None and not self._gave_up:
                held.claim = claim
                self._line_up(held)

    def hold(self, task_id: int) -> None:
        """Take a slot for a task that runs no body."""
        with self._lock:
            self._held.setdefault((task_id, 0), None)

    def release(self, keys: Iterable[Key]) -> None:
        """Give back the slots of attempts whose end is acknowledged; a task that ran no body has the attempt 0."""
        with self._lock:
            for key in keys:
                self._held.pop(key, None)

    def attempts(self) -> dict[int, int]:
        """Return the claims held: task id to attempt, the latest one of each."""
        with self._lock:
            return {held.claim.id: held.claim.attempt for held in self._held.values() if held is not None}

    def running(self) -> int:
        """How many bodies have neither ended nor been given up."""
        with self._lock:
            return sum(held is not None and not held.ended for held in self._held.values())

    def cancel(self, task_ids: Iterable[int]) -> None:
        """Raise the cancel flag of each of these tasks that is here."""
        wanted = set(task_ids)
        if not wanted:
            return
        with self._lock:
            chosen = [held for held in self._held.values() if held is not None and held.claim.id in wanted]
        for held in chosen:
            held.cancel.set()
        if self._supervisor is not None and chosen:
            self._supervisor.cancel(chosen)

    def cancel_all(self) -> None:
        self.cancel(self.attempts())

    def give_up(self) -> list[tuple[Claim, bool, bool]]:
        """Return the claims whose bodies have not ended, whether they began, and whether they may run on.

        No body begins any more, and what those that have still do is not heard. Those in processes are killed.
        """
        with self._lock:
            self._gave_up = True
            left = [held for held in self._held.values() if held is not None and not held.ended]
            for held in left:
                held.ended = True
        are_gone = self._supervisor is None or self._supervisor.end_all()
        return [
            (held.claim, held.began, held.began and not (are_gone and held.claim.kind in self._in_processes))
            for held in left
        ]

    def begin(self, held: Held) -> float | None:
        """Return by when the body of this claim must begin; None where it may not, now.

        Asked by whoever runs it, just before; once it may, it has begun, unless they then say that they were `unsure`.
        """
        with self._lock:
            if held.ended or held.began:
                return None
            begin_by = held.claim.known_at + self._sure_seconds
            held.began = self._clock() <= begin_by
        if not held.began:
            self._on_unsure(held.claim)
            return None
        return begin_by

    def unsure(self, held: Held) -> None:
        """The body of this claim was not begun by then."""
        with self._lock:
            held.began = False
        self._on_unsure(held.claim)

    def end(self, held: Held, outcome: Outcome) -> None:
        """Its body has ended; heard once, and not after it was given up."""
        with self._lock:
            heard = not held.ended
            if heard:
                # Told before it is marked: to be told twice of one outcome is harmless, never would keep the slot.
                self._on_end(outcome)
                held.ended = True
        if not heard:
            log.warning("body.unheard task=%d attempt=%d", held.claim.id, held.claim.attempt)

    def _line_up(self, held: Held) -> None:
        """Have a claim's body run; with the lock held."""
        if held.claim.kind in self._in_processes and self._supervisor is not None:
            self._supervisor.take(held)
        else:
            self._waiting.append(held)
            self._ring()

    def _run(self) -> None:
        hand: list[Held] = []
        thrown: BaseException | None = None
        while True:
            try:
                self._serve(hand, thrown)
            except BaseException as error:  # noqa: BLE001 - thrown while it left the handler of what was thrown before
                # A thread that ended between the bell and its first step would have all others wait for it.
                thrown = error

    def _serve(self, hand: list[Held], thrown: BaseException | None) -> NoReturn:
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

    def _run_what_waits(self, hand: list[Held]) -> None:
        with self._lock:
            self._rung = False
        while self._take(hand):
            self._run_one(hand[0])
            hand.clear()

    def _take(self, hand: list[Held]) -> bool:
        try:
            hand.extend(islice(self._arriving, 1))
        except IndexError:
            # There was none; or this very error was thrown at us just after we took one.
            return bool(hand)
        return True

    def _run_one(self, held: Held) -> None:
        with self._lock:
            if held.ended or held.thread is not None:
                return
            if self._waiting:
                self._ring()
            sure = self._clock() - held.claim.known_at <= self._sure_seconds
            if sure:
                held.began = True
                held.thread = get_ident()
        if not sure:
            self._on_unsure(held.claim)
            return
        limit_seconds = self._time_limits.get(held.claim.kind)
        if limit_seconds is not None and self._supervisor is not None:
            self._supervisor.watch(held, limit_seconds)
        held.outcome = run_body(held.claim, held.cancel, self._kinds, self._limits)
        self._end(held, held.outcome)

    def _go_on(self, held: Held, thrown: BaseException) -> None:
        """Something was thrown at this slot: begin what has not begun, end what has."""
        if held.thread is None:
            self._run_one(held)
        elif held.thread == get_ident() and not held.ended:
            task = self._kinds.get(held.claim.kind)
            held.outcome = held.outcome or raised(held.claim, thrown, held.cancel, self._limits, task)
            self._end(held, held.outcome)

    def _end(self, held: Held, outcome: Outcome) -> None:
        if self._time_limits and self._supervisor is not None:
            self._supervisor.unwatch(held)
        self.end(held, outcome)

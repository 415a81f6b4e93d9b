"""Who runs what in which child, until when: one thread that gives bodies to children, and ends them in time.

Bodies of a kind with slots that are processes run in children (see `dispatcher.child`), which are started, heard and
buried elsewhere (see `dispatcher.brood`). A claim of one waits here, in line, for a child that is free; the count of
slots has been taken from already. So there never are more bodies in children than slots, and a claim holds its slot
here as in a thread, until its outcome is acknowledged.

How many children: at the start as many as can run at once, on so many processors, or slots. Further ones, one for each
claim that waits and one to spare, once none has been free for `PATIENCE_SECONDS`: short bodies are done sooner than a
child is started, long ones must not wait for each other. For a child that is let go or dies, another takes its place;
for one that failed ever more seldom, while the claims wait, and the dispatcher says so with every beat.

A body whose time limit has passed, or whose cancel was accepted, is asked to stop, and then killed (see
`dispatcher.ladder`). Time limits of bodies in threads are watched here as well: their flag is raised, and that is all
there is to be done.

The thread waits, for as long as nothing happens and nothing is due; it looks at no clock meanwhile but to say that it
is alive. It exists where some kind has such slots or a time limit.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from signal import Signals
from socket import socket
from threading import Event
from time import monotonic
from typing import Final

from dispatcher import wire
from dispatcher.bell import Bell
from dispatcher.brood import LEAVE_SECONDS, Bounds, Brood, Closing
from dispatcher.children import Body, Child, State
from dispatcher.endings import Limits
from dispatcher.held import Held
from dispatcher.kinds import Task
from dispatcher.ladder import NEVER, Ladder
from dispatcher.messages import Ending, Outcome
from dispatcher.population import PATIENCE_SECONDS, Crowd, Population
from dispatcher.process_endings import ProcessEndings
from dispatcher.timers import Timers

log = logging.getLogger("tally.children")

GONE_SECONDS: Final = 2.0
"""Within so long children that were killed are waited for; it takes milliseconds."""


class Supervisor:
    """The thread's work is `run`; every other method may be called from any thread."""

    def __init__(
        self,
        kinds: Mapping[str, Task],
        setup: wire.Setup,
        limits: Limits,
        bounds: Bounds,
        *,
        begin: Callable[[Held], float | None],
        unsure: Callable[[Held], None],
        end: Callable[[Held, Outcome], None],
        turn: Callable[[], None],
        turn_seconds: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`begin`, `unsure` and `end` are those of the slots. `turn` is said every `turn_seconds` at least."""
        self._kinds = kinds
        self._endings = ProcessEndings(kinds, limits)
        self._bounds = bounds
        self._begin = begin
        self._on_end = end
        self._turn = turn
        self._turn_seconds = turn_seconds
        self._clock = clock
        self.name: socket | None = None
        """The dispatcher's name, which children hold too; set before the thread runs."""
        self._has_processes = any(task.options.slot == "process" for task in kinds.values())
        self._bell = Bell()
        self._timers = Timers(self._bell.ring)
        self._population = Population(bounds.slots, bounds.processors)
        self._brood = Brood(
            setup,
            bounds,
            self._endings,
            self._bell,
            freed=self._feed,
            ended=self._end,
            unsure=lambda body: unsure(body.held),
            left=self._look_whether_to_grow,
            failed=self._fail,
            clock=clock,
        )
        self._line: deque[tuple[Held, float]] = deque()
        self._none_free_since = clock()
        self._canceled: deque[Held] = deque()
        self._grow_at = clock()
        """Not before then is a child to be started."""
        self._step_at = NEVER
        """Not before then is something to be done to a body."""
        self._is_stopped = False
        self._gone = Event()
        """No child is left, and none is started any more."""
        self._killed = Event()
        """The same, but for what they still had to say."""

    def __repr__(self) -> str:
        brood = self._brood
        return f"<Supervisor {len(brood.children)} children, {len(brood.free)} free, {len(self._line)} waiting>"

    @property
    def trouble(self) -> str | None:
        """What keeps claims from getting a child; reported with every beat."""
        return self._brood.trouble

    def take(self, held: Held) -> None:
        """Run the body of a claim in a child, after those that were taken before."""
        self._line.append((held, self._clock()))
        self._bell.ring()

    def cancel(self, chosen: Iterable[Held]) -> None:
        """Their cancel flags were raised: stop those whose bodies are in a child, or wait for one."""
        self._canceled.extend(chosen)
        self._bell.ring()

    def watch(self, held: Held, limit_seconds: float) -> None:
        """A body begins in a thread: raise its flag once so many seconds have passed."""
        self._timers.begin(held, self._clock() + limit_seconds)

    def unwatch(self, held: Held) -> None:
        """That body has ended."""
        self._timers.end(held)

    def end_all(self) -> bool:
        """Kill the children, and wait until they are gone, which is returned; no body begins any more."""
        if self._close(Closing.KILL, GONE_SECONDS, self._killed):
            return True
        log.error("children.left count=%d", len(self._brood.children))
        return False

    def stop(self) -> None:
        """End the thread, and the children before it: those whose bodies run are killed."""
        self._is_stopped = True
        if not self._close(Closing.LEAVE, LEAVE_SECONDS, self._gone):
            self.end_all()

    def run(self) -> None:
        """Supervise until stopped."""
        try:
            while not (self._is_stopped and self._gone.is_set()):
                self._turn()
                was_rung = self._brood.hear(min(self._next_at() - self._clock(), self._turn_seconds))
                now = self._clock()
                if was_rung or now >= self._next_at():
                    self._act(now)
        finally:
            self._killed.set()
            self._gone.set()

    def _close(self, how: Closing, seconds: float, done: Event) -> bool:
        self._brood.closing = max(self._brood.closing, how)
        self._bell.ring()
        return done.wait(seconds)

    def _next_at(self) -> float:
        """When there is something to be done, unless something happens before."""
        return min(self._grow_at, self._step_at, self._brood.next_at, self._timers.next_at())

    def _act(self, now: float) -> None:
        """Do what is due."""
        if self._brood.closing:
            self._end_children()
        while self._canceled:
            self._stop_one(self._canceled.popleft(), now)
        for held in self._timers.passed(now):
            log.warning("body.out_of_time task=%d attempt=%d", held.claim.id, held.claim.attempt)
            held.cancel.timed_out = True
            held.cancel.set()
        if now >= self._step_at:
            self._step_all(now)
        self._brood.look_after(now)
        self._feed()
        if now >= self._grow_at:
            self._grow(now)

    def _feed(self) -> None:
        """Give claims that wait to children that are free."""
        if self._line and not self._brood.free:
            self._grow_at = min(self._grow_at, self._line[0][1] + PATIENCE_SECONDS)
        while self._line and self._brood.free:
            held, _ = self._line.popleft()
            if held.cancel.is_set():
                self._on_end(held, self._endings.not_begun(held.claim))
            elif (begin_by := self._begin(held)) is not None:
                now = self._clock()
                limit_seconds = self._kinds[held.claim.kind].options.time_limit_seconds
                ladder = Ladder(now, limit_seconds, self._bounds.grace_seconds)
                self._step_at = min(self._step_at, ladder.due_at)
                self._brood.begin(Body(held, ladder, begin_by))
                if not self._brood.free:
                    self._none_free_since = now
                    self._grow_at = min(self._grow_at, now + PATIENCE_SECONDS)

    def _end(self, body: Body, outcome: Outcome) -> None:
        if outcome.ending is not Ending.DIED:
            self._population.succeeded()
        self._on_end(body.held, outcome)

    def _grow(self, now: float) -> None:
        """Start children where there are too few."""
        self._grow_at = NEVER
        if self._brood.closing or not self._has_processes:
            return
        for _ in range(self._population.to_start(self._crowd(), now)):
            if not self._brood.start(self.name):
                break
        self._grow_at = self._population.next_at(self._crowd())

    def _crowd(self) -> Crowd:
        states = Counter(child.state for child in self._brood.children)
        since = self._line[0][1] if self._line else self._none_free_since
        return Crowd(states[State.STARTING], states[State.FREE], states[State.BUSY], len(self._line), since)

    def _look_whether_to_grow(self) -> None:
        self._grow_at = self._clock()

    def _fail(self) -> None:
        self._population.failed(self._clock())
        self._look_whether_to_grow()

    def _stop_one(self, held: Held, now: float) -> None:
        """A cancel was accepted: of a body that runs in a child, that waits for one, or that is not here any more."""
        for child in self._brood.children:
            if child.body is not None and child.body.held is held:
                child.body.ladder.cancel(now)
                self._step_at = min(self._step_at, child.body.ladder.due_at)
        # A copy: claims arrive meanwhile.
        for waiting in [each for each in tuple(self._line) if each[0] is held]:
            self._line.remove(waiting)
            self._on_end(held, self._endings.not_begun(held.claim))

    def _step_all(self, now: float) -> None:
        """Take the next step with each body for which it is time."""
        self._step_at = NEVER
        for child in self._brood.children:
            if child.body is not None:
                self._step(child, child.body, now)
                self._step_at = min(self._step_at, child.body.ladder.due_at)

    def _step(self, child: Child, body: Body, now: float) -> None:
        sent = body.ladder.step(now)
        if sent is None:
            return
        claim, timed_out = body.held.claim, body.ladder.timed_out
        why = "time limit" if timed_out else "cancel"
        log.warning("body.signaled task=%d attempt=%d signal=%s why=%r", claim.id, claim.attempt, sent.name, why)
        if sent is Signals.SIGTERM:
            child.terminate(timed_out=timed_out)
        else:
            child.kill()

    def _end_children(self) -> None:
        """This dispatcher ends."""
        self._line.clear()
        if self._brood.end():
            self._killed.set()
        if not self._brood.children:
            self._gone.set()


def is_needed(kinds: Mapping[str, Task]) -> bool:
    """Is there anything to supervise?"""
    return any(task.options.slot == "process" or task.options.time_limit_seconds is not None for task in kinds.values())

"""Who runs what in which child, until when: one thread that starts the children, feeds them, hears them and ends them.

Bodies of a kind with slots that are processes run in children (see `dispatcher.child`). A claim of one waits here, in
line, for a child that is free; the count of slots has been taken from already. So there never are more bodies in
children than slots, and a claim holds its slot here as in a thread, until its outcome is acknowledged.

How many children: at the start as many as can run at once, on so many processors, or slots. Further ones, one for each
claim that waits and one to spare, once none has been free for `PATIENCE_SECONDS`: short bodies are done sooner than a
child is started, long ones must not wait for each other. A child that has run its number of tasks, or takes too much
memory, or was told to stop its body, is let go, and another takes its place.

A child that dies takes the one task with it whose body it ran. One that dies before its first task, or that cannot get
ready, is no task's fault: this dispatcher is in trouble, says so with every beat, and tries again ever more seldom,
while the claims wait.

Time limits of bodies in threads are watched here as well: their flag is raised, and that is all there is to be done.

The thread waits, for as long as nothing happens and nothing is due; it looks at no clock meanwhile but to say that it
is alive. It exists where some kind has such slots or a time limit.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector, SelectorKey
from signal import Signals
from socket import socket
from threading import Event
from time import monotonic
from typing import Final, assert_never

from dispatcher import wire
from dispatcher.bell import Bell
from dispatcher.children import Body, Child, Printed, State
from dispatcher.endings import Limits
from dispatcher.held import Held
from dispatcher.kinds import Task
from dispatcher.ladder import NEVER, Ladder
from dispatcher.messages import Ending, Outcome
from dispatcher.population import PATIENCE_SECONDS, Crowd, Population
from dispatcher.process_endings import ProcessEndings
from dispatcher.timers import Timers
from sql.log import is_log_behind

log = logging.getLogger("tally.children")

PRINTED, WIRE, END = range(3)
"""In which order what came is looked at: what a body printed before its answer, and both before its child's end."""

MUTED_SECONDS: Final = 0.02
"""For so long nothing that is printed is read, while the log is behind: bodies wait with it."""
GONE_SECONDS: Final = 2.0
"""Within so long children that were killed are waited for; it takes milliseconds."""
START_SECONDS: Final = 120.0
"""Within so long a child must be ready; it imports what the dispatcher has imported."""
DEAF_SECONDS: Final = 0.1
"""How long a child has to end that closed the wire, and perhaps what binds it to its dispatcher."""
LEAVE_SECONDS: Final = 1.0
"""How long children have to end by themselves when their dispatcher does."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a child may take."""

    slots: int
    processors: int
    tasks: int
    resident_bytes: int
    grace_seconds: float
    """From SIGTERM to SIGKILL, and from the end of the wire to SIGKILL."""


class Closing(IntEnum):
    """How far the end has come: children may end by themselves, or are killed."""

    NOT = 0
    LEAVE = 1
    KILL = 2


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
        self._setup = setup
        self._endings = ProcessEndings(kinds, limits)
        self._bounds = bounds
        self._begin = begin
        self._on_unsure = unsure
        self._on_end = end
        self._turn = turn
        self._turn_seconds = turn_seconds
        self._clock = clock
        self.name: socket | None = None
        """The dispatcher's name, which children hold too; set before the thread runs."""
        self.trouble: str | None = None
        """What keeps claims from getting a child; reported with every beat."""
        self._has_processes = any(task.options.slot == "process" for task in kinds.values())
        self._has_timers = any(
            task.options.slot == "thread" and task.options.time_limit_seconds is not None for task in kinds.values()
        )
        self._bell = Bell()
        self._timers = Timers(self._bell.ring)
        self._population = Population(bounds.slots, bounds.processors)
        self._children: list[Child] = []
        self._free: list[Child] = []
        self._line: deque[tuple[Held, float]] = deque()
        self._none_free_since = clock()
        self._canceled: deque[Held] = deque()
        self._muted: list[tuple[Child, Printed]] = []
        self._listen_at = NEVER
        self._grow_at = self._step_at = clock()
        """Not before then is a child to be started, or something to be done to one."""
        self._closing = Closing.NOT
        self._is_stopped = False
        self._gone = Event()
        """No child is left, and none is started any more."""
        self._killed = Event()
        """The same, but for what they still had to say."""
        self._selector = DefaultSelector()
        self._was_rung = True
        self._selector.register(self._bell.file, EVENT_READ, (WIRE, self._hear_bell))

    def __repr__(self) -> str:
        return f"<Supervisor {len(self._children)} children, {len(self._free)} free, {len(self._line)} waiting>"

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
        log.error("children.left count=%d", len(self._children))
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
                for key, mask in sorted(self._wait(), key=_order):
                    key.data[1](mask)
                now = self._clock()
                if self._was_rung or now >= self._next_at():
                    self._was_rung = False
                    self._act(now)
        finally:
            self._killed.set()
            self._gone.set()

    def _wait(self) -> list[tuple[SelectorKey, int]]:
        """Wait until a child has something to say, the bell rings, or something is due."""
        seconds = min(self._next_at() - self._clock(), self._turn_seconds)
        return self._selector.select(max(0.0, seconds))

    def _close(self, how: Closing, seconds: float, done: Event) -> bool:
        self._closing = max(self._closing, how)
        self._bell.ring()
        return done.wait(seconds)

    def _hear_bell(self, _mask: int) -> None:
        self._bell.hear()
        self._was_rung = True

    def _next_at(self) -> float:
        """When there is something to be done, unless something happens before."""
        next_at = min(self._grow_at, self._step_at, self._listen_at)
        return min(next_at, self._timers.next_at()) if self._has_timers else next_at

    def _act(self, now: float) -> None:
        """Do what is due."""
        if self._closing:
            self._end_children(now)
        while self._canceled:
            self._stop_one(self._canceled.popleft(), now)
        for held in self._timers.passed(now):
            log.warning("body.out_of_time task=%d attempt=%d", held.claim.id, held.claim.attempt)
            held.cancel.timed_out = True
            held.cancel.set()
        if now >= self._step_at:
            self._step_all(now)
        if now >= self._listen_at:
            self._listen()
        self._feed(now)
        if now >= self._grow_at:
            self._grow(now)

    def _feed(self, now: float) -> None:
        """Give claims that wait to children that are free."""
        if self._line and not self._free:
            self._grow_at = min(self._grow_at, self._line[0][1] + PATIENCE_SECONDS)
        while self._line and self._free:
            held, _ = self._line.popleft()
            if held.cancel.is_set():
                self._on_end(held, self._endings.not_begun(held.claim))
            elif (begin_by := self._begin(held)) is not None:
                limit_seconds = self._kinds[held.claim.kind].options.time_limit_seconds
                ladder = Ladder(now, limit_seconds, self._bounds.grace_seconds)
                self._step_at = min(self._step_at, ladder.due_at)
                # The one that was free last: its memory is warm, and the others may be let go.
                child = self._free.pop()
                child.begin(Body(held, ladder, begin_by))
                if child.is_sending:
                    self._selector.modify(child.control, EVENT_READ | EVENT_WRITE, (WIRE, partial(self._hear, child)))
                if not self._free:
                    self._none_free_since = now
                    self._grow_at = min(self._grow_at, now + PATIENCE_SECONDS)

    def _grow(self, now: float) -> None:
        """Start children where there are too few."""
        self._grow_at = NEVER
        if self._closing or not self._has_processes:
            return
        for _ in range(self._population.to_start(self._crowd(), now)):
            try:
                self._start()
            except OSError as error:
                self._fail(f"{type(error).__name__}: {error}")
                break
        self._grow_at = self._population.next_at(self._crowd())

    def _crowd(self) -> Crowd:
        states = Counter(child.state for child in self._children)
        since = self._line[0][1] if self._line else self._none_free_since
        return Crowd(states[State.STARTING], states[State.FREE], states[State.BUSY], len(self._line), since)

    def _start(self) -> None:
        child = Child(self.name, self._setup)
        log.debug("child.started process=%d", child.pid)
        child.leave_by = self._clock() + START_SECONDS
        self._step_at = min(self._step_at, child.leave_by)
        self._children.append(child)
        self._selector.register(child.control, EVENT_READ, (WIRE, partial(self._hear, child)))
        for printed in child.printed:
            self._selector.register(printed.file, EVENT_READ, (PRINTED, partial(self._hear_printed, child, printed)))
        if child.end is not None:
            self._selector.register(child.end, EVENT_READ, (END, partial(self._bury, child)))

    def _fail(self, why: str) -> None:
        """A child ended, or could not be started, for no task's fault."""
        self._population.failed(self._clock())
        self._grow_at = self._clock()
        self.trouble = f"process slots: {why}"
        log.error("child.failed why=%s", why)

    def _hear(self, child: Child, mask: int) -> None:
        if mask & EVENT_WRITE:
            child.send_on()
            if not child.is_sending:
                self._selector.modify(child.control, EVENT_READ, (WIRE, partial(self._hear, child)))
        if mask & EVENT_READ:
            try:
                messages = child.receive()
            except BlockingIOError:
                return
            except EOFError:
                self._hear_end_of_wire(child)
                return
            for message in messages:
                self._hear_message(child, message)

    def _hear_end_of_wire(self, child: Child) -> None:
        """It has ended, or has closed what it was reached by and is of no more use."""
        self._selector.unregister(child.control)
        if child in self._free:
            self._free.remove(child)
        if child.end is None:
            self._bury(child)
        elif child.state is not State.LEAVING:
            child.leave_by = self._clock() + DEAF_SECONDS
            self._step_at = min(self._step_at, child.leave_by)

    def _hear_message(self, child: Child, message: wire.FromChild) -> None:
        match message:
            case wire.Ready() | wire.Broken() if child.state is not State.STARTING:
                child.kill()
            case wire.Ready():
                child.leave_by = NEVER
                self.trouble = None
                self._set_free(child)
            case wire.Broken(why):
                self._fail(why)
                self._let_go(child)
            case wire.Logged(logger, level, text):
                logging.getLogger(logger).log(level, "%s", text)
            case wire.Ended() | wire.Unsure() if child.body is None:
                # What nobody asked for: its body has found the wire.
                child.kill()
            case wire.Ended():
                self._hear_end(child, child.body, message)
            case wire.Unsure():
                body = child.body
                if body.ladder.sent is None:
                    self._set_free(child)
                else:
                    self._let_go(child)
                self._on_unsure(body.held)
            case _:
                assert_never(message)

    def _hear_end(self, child: Child, body: Body, ended: wire.Ended) -> None:
        for printed in child.printed:
            if printed.has_rest:
                self._tell(child, printed, printed.rest())
        child.tasks += 1
        self._population.succeeded()
        if (
            body.ladder.sent is None
            and child.tasks < self._bounds.tasks
            and ended.resident_bytes <= self._bounds.resident_bytes
        ):
            # The next body runs while we see to the end of this one.
            self._set_free(child)
        else:
            self._let_go(child)
        self._on_end(body.held, self._endings.answered(body, ended))

    def _set_free(self, child: Child) -> None:
        """A child is ready for the next task, unless it has died meanwhile."""
        child.state = State.FREE
        child.body = None
        if not child.is_over:
            self._free.append(child)
            self._feed(self._clock())

    def _hear_printed(self, child: Child, printed: Printed, _mask: int) -> None:
        if is_log_behind():
            self._selector.unregister(printed.file)
            printed.is_muted = True
            self._muted.append((child, printed))
            self._listen_at = self._clock() + MUTED_SECONDS
            return
        try:
            self._tell(child, printed, printed.read())
        except EOFError:
            self._selector.unregister(printed.file)

    def _listen(self) -> None:
        muted, self._muted, self._listen_at = self._muted, [], NEVER
        for child, printed in muted:
            printed.is_muted = False
            if not child.is_over:
                hear = partial(self._hear_printed, child, printed)
                self._selector.register(printed.file, EVENT_READ, (PRINTED, hear))

    def _tell(self, child: Child, printed: Printed, lines: list[str]) -> None:
        for line in lines:
            if child.body is not None:
                claim = child.body.held.claim
                log.info("body.printed task=%d attempt=%d to=%s line=%s", claim.id, claim.attempt, printed.name, line)
            else:
                log.info("child.printed process=%d to=%s line=%s", child.pid, printed.name, line)

    def _stop_one(self, held: Held, now: float) -> None:
        """A cancel was accepted: of a body that runs in a child, that waits for one, or that is not here any more."""
        for child in self._children:
            if child.body is not None and child.body.held is held:
                child.body.ladder.cancel(now)
                self._step_at = min(self._step_at, child.due_at)
        for waiting in [each for each in tuple(self._line) if each[0] is held]:
            self._line.remove(waiting)
            self._on_end(held, self._endings.not_begun(held.claim))

    def _step_all(self, now: float) -> None:
        """Take the next step with each child for which it is time."""
        for child in self._children:
            if now >= child.leave_by:
                child.kill()
            elif child.body is not None:
                self._step(child, child.body, now)
        self._step_at = min((child.due_at for child in self._children), default=NEVER)

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

    def _let_go(self, child: Child) -> None:
        """Let a child end by itself, which takes no task any more."""
        now = self._clock()
        child.body = None
        child.leave(now + self._bounds.grace_seconds)
        self._step_at = min(self._step_at, child.leave_by)
        self._grow_at = now

    def _end_children(self, now: float) -> None:
        """This dispatcher ends."""
        self._line.clear()
        for child in self._children:
            if self._closing is Closing.KILL or child.state in {State.STARTING, State.BUSY}:
                child.kill()
            elif child.state is State.FREE:
                child.leave(now + LEAVE_SECONDS)
                self._step_at = min(self._step_at, child.leave_by)
        self._free.clear()
        if self._closing is Closing.KILL:
            # Waited for at once: to tell all that they printed may take longer.
            for child in self._children:
                child.reap()
            if all(child.has_ended() for child in self._children):
                self._killed.set()
        if not self._children:
            self._gone.set()

    def _bury(self, child: Child, _mask: int = 0) -> None:
        """A child has ended: hear what it still had to say, and what became of its task."""
        status = child.reap()
        child.is_over = True
        with suppress(EOFError, BlockingIOError):
            while True:
                for message in child.receive():
                    self._hear_message(child, message)
        for printed in child.printed:
            self._tell(child, printed, printed.rest())
        for file in child.files:
            if file in self._selector.get_map():
                self._selector.unregister(file)
        child.close()
        self._children.remove(child)
        if child in self._free:
            self._free.remove(child)
        self._grow_at = self._clock()
        if self._closing:
            return
        body = child.body
        if body is not None and not (child.did_not_hear and body.ladder.sent is None):
            outcome = self._endings.died(body, child, status)
            if outcome.ending is Ending.DIED:
                log.warning("child.died task=%d %s", outcome.id, child.obituary(status))
            self._on_end(body.held, outcome)
            return
        if body is not None:
            # It died before it had read of its task.
            self._on_unsure(body.held)
        if child.state is State.LEAVING:
            log.debug("child.ended process=%d tasks=%d", child.pid, child.tasks)
        elif child.tasks:
            log.warning("child.died task=none %s", child.obituary(status))
        else:
            self._fail(child.obituary(status))


def is_needed(kinds: Mapping[str, Task]) -> bool:
    """Is there anything to supervise?"""
    return any(task.options.slot == "process" or task.options.time_limit_seconds is not None for task in kinds.values())


def _order(event: tuple[SelectorKey, int]) -> int:
    order: int = event[0].data[0]
    return order

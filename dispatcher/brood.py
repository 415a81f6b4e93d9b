"""The children of a dispatcher, as files: started, given bodies, heard, let go, and buried, by one thread.

Nothing here decides which body runs, or for how long. The owner asks for a child to be started, gives a body to one
that is free, and is told what that ended in. It waits here, for whatever has something to say first.

A child says what it has to say by three ways that know nothing of each other: its prints, the wire, and its end. What
a body printed is told before its answer is looked at, and both before its child is buried. Prints wait where the log
is behind, for then a body that prints waits too, and nobody else.

A child leaves when it has run its number of tasks, takes too much memory, or was told to stop its body. It has a while
to do so, as each has to get ready; then it is killed. One that ends by itself takes the one task with it whose body it
ran. If it had not read of that yet, nothing has begun, and the body is said to be unsure. A child that could not
be started, could not get ready, or died before its first task is no task's fault: the trouble is the dispatcher's.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector, SelectorKey
from socket import socket
from typing import Final, assert_never

from dispatcher import wire
from dispatcher.bell import Bell
from dispatcher.children import Body, Child, Printed, State
from dispatcher.ladder import NEVER
from dispatcher.messages import Ending, Outcome
from dispatcher.process_endings import ProcessEndings
from sql.log import is_log_behind

log = logging.getLogger("tally.children")

PRINTED, WIRE, END = range(3)
"""In which order what came is looked at: what a body printed before its answer, and both before its child's end."""

MUTED_SECONDS: Final = 0.02
"""For so long nothing that is printed is read, while the log is behind: bodies wait with it."""
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


class Brood:
    """Of one thread; only `closing` may be set by others, who ring for it then."""

    def __init__(
        self,
        setup: wire.Setup,
        bounds: Bounds,
        endings: ProcessEndings,
        bell: Bell,
        *,
        freed: Callable[[], None],
        ended: Callable[[Body, Outcome], None],
        unsure: Callable[[Body], None],
        left: Callable[[], None],
        failed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """The owner is told: one is free; what a body ended in, or that it did not begin; there is one less to give
        bodies to; and that one failed for no task's fault, as `trouble` says.
        """
        self._setup = setup
        self._bounds = bounds
        self._endings = endings
        self._bell = bell
        self._on_freed = freed
        self._on_ended = ended
        self._on_unsure = unsure
        self._on_left = left
        self._on_failed = failed
        self._clock = clock
        self.children: list[Child] = []
        self.free: list[Child] = []
        self.trouble: str | None = None
        """Why the last child failed, until one is ready."""
        self.closing = Closing.NOT
        self._muted: list[tuple[Child, Printed]] = []
        self._listen_at = self._leave_at = NEVER
        self._was_rung = False
        self._selector = DefaultSelector()
        self._selector.register(bell.file, EVENT_READ, (WIRE, self._hear_bell))

    def __repr__(self) -> str:
        return f"<Brood of {len(self.children)}, {len(self.free)} free>"

    @property
    def next_at(self) -> float:
        """When `look_after` has something to do, unless something happens before."""
        return min(self._leave_at, self._listen_at)

    def start(self, name: socket | None) -> bool:
        """Start a child, which holds the dispatcher's name too; return whether the system could."""
        try:
            child = Child(name, self._setup)
        except OSError as error:
            self._fail(f"{type(error).__name__}: {error}")
            return False
        log.debug("child.started process=%d", child.pid)
        self._let_live(child, START_SECONDS)
        self.children.append(child)
        self._selector.register(child.control, EVENT_READ, (WIRE, partial(self._hear, child)))
        for printed in child.printed:
            self._register_printed(child, printed)
        if child.end is not None:
            self._selector.register(child.end, EVENT_READ, (END, partial(self._bury, child)))
        return True

    def begin(self, body: Body) -> None:
        """Run a body in the child that was free last: its memory is warm, and the others may be let go."""
        child = self.free.pop()
        child.begin(body)
        if child.is_sending:
            self._selector.modify(child.control, EVENT_READ | EVENT_WRITE, (WIRE, partial(self._hear, child)))

    def hear(self, seconds: float) -> bool:
        """Wait so long for something to be heard, and see to it; return whether the bell has rung."""
        self._was_rung = False
        for key, mask in sorted(self._selector.select(max(0.0, seconds)), key=_order):
            key.data[1](mask)
        return self._was_rung

    def look_after(self, now: float) -> None:
        """Kill those whose time to be ready, or gone, is over; read again what is printed."""
        if now >= self._leave_at:
            for child in self.children:
                if now >= child.leave_by:
                    child.kill()
            self._leave_at = min((child.leave_by for child in self.children), default=NEVER)
        if now >= self._listen_at:
            self._listen()

    def end(self) -> bool:
        """End all children, as `closing` says; to be said again until there is none.

        Returns whether they are known to be dead, all of them, whatever they still had to say.
        """
        for child in self.children:
            if self.closing is Closing.KILL or child.state in {State.STARTING, State.BUSY}:
                child.kill()
            elif child.state is State.FREE:
                child.leave(self._clock() + LEAVE_SECONDS)
                self._leave_at = min(self._leave_at, child.leave_by)
        self.free.clear()
        if self.closing is not Closing.KILL:
            return False
        # Waited for at once: to tell all that they printed may take longer.
        for child in self.children:
            child.reap()
        return all(child.has_ended() for child in self.children)

    def _hear_bell(self, _mask: int) -> None:
        self._bell.hear()
        self._was_rung = True

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
        if child in self.free:
            self.free.remove(child)
        if child.end is None:
            self._bury(child)
        elif child.state is not State.LEAVING:
            self._let_live(child, DEAF_SECONDS)

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
                self._on_unsure(body)
            case _:
                assert_never(message)

    def _hear_end(self, child: Child, body: Body, ended: wire.Ended) -> None:
        for printed in child.printed:
            if printed.has_rest:
                self._tell(child, printed, printed.rest())
        child.tasks += 1
        if (
            body.ladder.sent is None
            and child.tasks < self._bounds.tasks
            and ended.resident_bytes <= self._bounds.resident_bytes
        ):
            # The next body runs while we see to the end of this one.
            self._set_free(child)
        else:
            self._let_go(child)
        self._on_ended(body, self._endings.answered(body, ended))

    def _register_printed(self, child: Child, printed: Printed) -> None:
        self._selector.register(printed.file, EVENT_READ, (PRINTED, partial(self._hear_printed, child, printed)))

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
                self._register_printed(child, printed)

    def _tell(self, child: Child, printed: Printed, lines: list[str]) -> None:
        for line in lines:
            if child.body is not None:
                claim = child.body.held.claim
                log.info("body.printed task=%d attempt=%d to=%s line=%s", claim.id, claim.attempt, printed.name, line)
            else:
                log.info("child.printed process=%d to=%s line=%s", child.pid, printed.name, line)

    def _set_free(self, child: Child) -> None:
        """A child is ready for the next task, unless it has died meanwhile."""
        child.state = State.FREE
        child.body = None
        if not child.is_over:
            self.free.append(child)
            self._on_freed()

    def _let_go(self, child: Child) -> None:
        """Let a child end by itself, which takes no task any more."""
        child.body = None
        child.leave(self._clock() + self._bounds.grace_seconds)
        self._leave_at = min(self._leave_at, child.leave_by)
        self._on_left()

    def _let_live(self, child: Child, seconds: float) -> None:
        """Kill it after so long, unless it gets ready, or ends, before."""
        child.leave_by = self._clock() + seconds
        self._leave_at = min(self._leave_at, child.leave_by)

    def _fail(self, why: str) -> None:
        """A child ended, or could not be started, for no task's fault."""
        self.trouble = f"process slots: {why}"
        log.error("child.failed why=%s", why)
        self._on_failed()

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
        self.children.remove(child)
        if child in self.free:
            self.free.remove(child)
        self._on_left()
        if not self.closing:
            self._mourn(child, status)

    def _mourn(self, child: Child, status: int) -> None:
        """Say what a child's end means, for its task or for the dispatcher."""
        body = child.body
        if body is not None and not (child.did_not_hear and body.ladder.sent is None):
            outcome = self._endings.died(body, child, status)
            if outcome.ending is Ending.DIED:
                log.warning("child.died task=%d %s", outcome.id, child.obituary(status))
            self._on_ended(body, outcome)
            return
        if body is not None:
            # It died before it had read of its task.
            self._on_unsure(body)
        if child.state is State.LEAVING:
            log.debug("child.ended process=%d tasks=%d", child.pid, child.tasks)
        elif child.tasks:
            log.warning("child.died task=none %s", child.obituary(status))
        else:
            self._fail(child.obituary(status))


def _order(event: tuple[SelectorKey, int]) -> int:
    order: int = event[0].data[0]
    return order

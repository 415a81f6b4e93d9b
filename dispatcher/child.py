"""`python -m dispatcher.child`: a child of a dispatcher. It runs bodies in its main thread, one after the other.

Only a dispatcher starts it, with the numbers of the files that it is given: its end of the wire, its end of the life
pipe, and the dispatcher's name, if there is one, which it holds to its own end. First of all it sees to it that it
cannot outlive its dispatcher. Then it imports what declares the kinds, says that it is ready, and takes one task after
the other until the wire is closed.

Stop: the dispatcher sends `Stop`, and SIGTERM, whose handler reads that, raises the body's cancel flag, and raises
`Canceled` in the midst of the body; not of an async one, which its event loop stops. SIGTERM alone means nothing: who
ends a whole service may send it to every process, and the dispatcher decides when its bodies end.
"""

import faulthandler
import logging
import os
import signal
import sys
from asyncio import get_running_loop
from collections import deque
from contextlib import suppress
from io import TextIOWrapper
from resource import RUSAGE_SELF, getrusage
from socket import MSG_DONTWAIT, socket
from threading import Lock, get_ident
from time import monotonic
from typing import Final

from dispatcher import life, text_stats, wire
from dispatcher.clock import clock_with_sleep
from dispatcher.context import Cancel
from dispatcher.endings import Limits, raised, run_body
from dispatcher.failures import Canceled
from dispatcher.kinds import KINDS, load
from dispatcher.messages import Claim, Outcome

RECEIVED_BYTES: Final = 64 * 1024
LOOK_SECONDS: Final = 0.01


def main() -> None:
    """Run bodies until the dispatcher closes the wire."""
    control, life_pipe, *name = map(int, sys.argv[1:])
    life.end_with(life_pipe)
    for number in (control, life_pipe, *name):
        # Or whatever a body starts would hold them too.
        os.set_inheritable(number, False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # What waited here would be lost with a process that dies.
            stream.reconfigure(write_through=True, errors="backslashreplace")
    faulthandler.enable()
    Child(socket(fileno=control)).run()


class Child:
    """One child, from the inside; `run` in the main thread, whose signals it handles."""

    def __init__(self, control: socket) -> None:
        self._control = control
        self._frames = wire.Frames()
        self._arrived: deque[bytes] = deque()
        self._is_copy = False
        self._memory = Memory()
        self._main = get_ident()
        self._sending = Lock()
        self._main_sends = False
        self._cancel: Flag | None = None
        """Of the body that runs."""
        self._was_signaled = False
        """SIGTERM came while no body ran, perhaps just before the one that it is about, or while a message was sent."""

    def run(self) -> None:
        """Get ready, and run bodies until the wire is closed."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        os.register_at_fork(after_in_child=self._become_copy)
        setup = self._receive()
        if not isinstance(setup, wire.Setup):
            return
        root = logging.getLogger()
        root.addHandler(ToDispatcher(self))
        root.setLevel(setup.log_level)
        sys.path[:] = map(os.fsdecode, setup.path)
        text_stats.declare(setup.max_words)
        problems = load(setup.modules)
        if problems:
            self.send(wire.Broken("; ".join(problems)))
            return
        limits = Limits(setup.max_depth, setup.max_result_bytes, setup.max_detail_bytes)
        self.send(wire.Ready())
        while (message := self._receive()) is not None:
            # A `Stop` that comes here came too late.
            if not isinstance(message, wire.Run):
                continue
            if clock_with_sleep() > message.begin_by:
                self.send(wire.Unsure())
            else:
                self._answer(self._run(message, limits))

    @property
    def is_copy(self) -> bool:
        """Is this process a copy of the child that its body made by a fork? The wire is not its to write to."""
        return self._is_copy

    def send(self, message: wire.FromChild) -> None:
        """Send a message, from any thread. `Canceled` is never raised in its midst, which would tear the frame."""
        framed = wire.frame(message)
        in_main = get_ident() == self._main
        self._main_sends = self._main_sends or in_main
        try:
            with self._sending:
                self._control.sendall(framed)
        finally:
            if in_main:
                self._main_sends = False
                if self._was_signaled and self._cancel is not None:
                    self._on_sigterm()

    def _receive(self) -> wire.ToChild | None:
        """Wait for the next message; None at the end."""
        while not self._arrived:
            data = self._control.recv(RECEIVED_BYTES)
            if not data:
                return None
            self._arrived.extend(self._frames.feed(data))
        return wire.TO_CHILD.decode(self._arrived.popleft())

    def _run(self, run: wire.Run, limits: Limits) -> Outcome:
        claim = Claim(run.task, run.attempt, run.kind, run.input, 0, 0, 0.0)
        cancel = Flag()
        if signal.getsignal(signal.SIGTERM) != self._on_sigterm:
            # The body before has taken it away.
            signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        outcome: Outcome | None = None
        try:
            self._cancel = cancel
            if self._was_signaled:
                self._on_sigterm()
            outcome = run_body(claim, cancel, KINDS, limits)
            self._cancel = None
        except Canceled as error:
            # Thrown by the handler before the body began, or after it ended.
            self._cancel = None
            outcome = outcome or raised(claim, error, cancel, limits)
        return outcome

    def _answer(self, outcome: Outcome) -> None:
        if self._is_copy:
            # A body let its copy go on to here: the answer is not the copy's to give.
            os._exit(1)
        self.send(
            wire.Ended(
                outcome.state,
                outcome.result,
                outcome.error,
                outcome.ending,
                outcome.after_seconds,
                self._memory.resident_bytes(),
            )
        )

    def _on_sigterm(self, *_: object) -> None:
        cancel = self._cancel
        if cancel is None or self._main_sends:
            self._was_signaled = True
            return
        self._was_signaled = False
        with suppress(BlockingIOError):
            self._arrived.extend(self._frames.feed(self._control.recv(RECEIVED_BYTES, MSG_DONTWAIT)))
        if not self._arrived:
            return
        stop = wire.TO_CHILD.decode(self._arrived.popleft())
        cancel.timed_out = isinstance(stop, wire.Stop) and stop.timed_out
        cancel.set()
        if not cancel.stops_loop:
            raise Canceled

    def _become_copy(self) -> None:
        self._is_copy = True
        # Whoever makes processes ends them by it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Flag(Cancel):
    """The cancel flag of a body in the main thread."""

    __slots__ = ()

    @property
    def stops_loop(self) -> bool:
        """Does the event loop that runs here stop by itself, once it is set? Asked in the main thread.

        A plain function may run a loop too, which was told of nothing.
        """
        with suppress(RuntimeError):
            return bool(get_running_loop() and self._told)
        return False


class Memory:
    """How much memory this process takes, as far as a while ago."""

    def __init__(self) -> None:
        self._resident_bytes = 0
        self._look_at = 0.0
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY)
        except OSError:
            self._statm = -1
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def resident_bytes(self) -> int:
        """Return what is resident, looked at after short bodies only now and then: much takes its time."""
        now = monotonic()
        if now >= self._look_at:
            self._resident_bytes = self._look()
            self._look_at = now + LOOK_SECONDS
        return self._resident_bytes

    def _look(self) -> int:
        """Return what is resident now; the most there ever was where the system tells no more."""
        if self._statm >= 0:
            return int(os.pread(self._statm, 100, 0).split()[1]) * self._page_bytes
        unit = 1 if sys.platform == "darwin" else 1024
        return getrusage(RUSAGE_SELF).ru_maxrss * unit


class ToDispatcher(logging.Handler):
    """Hands records to the dispatcher, whose log is the one."""

    def __init__(self, child: Child) -> None:
        super().__init__()
        self._child = child

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = _storable(self.format(record))
        except Exception:  # noqa: BLE001 - whatever was to be formatted; no body fails by what it logs
            self.handleError(record)
            return
        if self._child.is_copy:
            # Two processes would mix their frames.
            sys.stderr.write(f"{text}\n")
        else:
            self._child.send(wire.Logged(_storable(record.name), record.levelno, text))


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    main()

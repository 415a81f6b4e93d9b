"""One child as its dispatcher sees it: started, told, heard, signaled, and waited for.

A child is a fresh interpreter, never a copy of this process, with a session and a process group of its own: what its
body starts belongs to the group and ends with it, and a terminal's Ctrl-C reaches none of them. It is given its end of
the wire, of the life pipe and of the pipes that it prints to, besides the dispatcher's name, and no other file.

Nothing here waits: whoever holds a child asks `selectors` which of its files have something to read.
"""

import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from enum import Enum
from socket import socket, socketpair
from typing import Final, NamedTuple

from msgspec import DecodeError

from dispatcher import wire
from dispatcher.held import Held
from dispatcher.ladder import NEVER, Ladder
from dispatcher.life import bind

READ_BYTES: Final = 64 * 1024
"""What a pipe holds."""
LINE_BYTES: Final = 4096
"""A longer line is told in pieces. At a turn no more than that is read of a stream: it may be as many lines."""
TAIL_LINES: Final = 20
"""Of what a body printed to stderr, in the error of its task."""
REAP_SECONDS: Final = 5.0
"""A process that is killed is gone in milliseconds, unless it sits in the midst of a call to a device."""


class State(Enum):
    """Of a child. One that is `LEAVING` was told to end, and takes no task any more."""

    STARTING = "starting"
    FREE = "free"
    BUSY = "busy"
    LEAVING = "leaving"


class Printed:
    """The lines of a stream, as a child writes them."""

    def __init__(self, file: int, name: str) -> None:
        os.set_blocking(file, False)
        self.file = file
        self.name = name
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        """The last lines that were told."""
        self._rest = b""
        self._has_more = False
        self.is_muted = False
        """It is not read for a while: the log is behind."""

    def read(self, most_bytes: int = LINE_BYTES) -> list[str]:
        """Return the lines that are whole now. Raises `EOFError` when nobody can write any more and all is read."""
        try:
            data = os.read(self.file, most_bytes)
        except BlockingIOError:
            return []
        if not data:
            raise EOFError
        self._has_more = len(data) == most_bytes
        *whole, self._rest = (self._rest + data).split(b"\n")
        lines: list[str] = []
        for line in whole:
            lines += self._told(line)
        while len(self._rest) > LINE_BYTES:
            lines += self._told(self._rest[:LINE_BYTES])
            self._rest = self._rest[LINE_BYTES:]
        return lines

    @property
    def has_rest(self) -> bool:
        return bool(self._rest) or self._has_more or self.is_muted

    def rest(self) -> list[str]:
        """Return what the pipe still holds, and a line that was not ended, and is told so.

        No more than that: who has left the child's group may write to its pipe for ever.
        """
        lines: list[str] = []
        with suppress(EOFError):
            lines = self.read(READ_BYTES)
        self._has_more = False
        rest, self._rest = self._rest, b""
        return lines + (self._told(rest) if rest else [])

    def _told(self, line: bytes) -> list[str]:
        pieces = [line[at : at + LINE_BYTES].decode(errors="replace") for at in range(0, max(1, len(line)), LINE_BYTES)]
        self.tail += pieces
        return pieces


class Body(NamedTuple):
    """A body that runs in a child."""

    held: Held
    ladder: Ladder
    begin_by: float
    """By `clock_with_sleep`; later it is not sure any more that the claim is current."""


class Child:
    """A child process. Raises `OSError` where the system has no process or file left for it."""

    def __init__(self, name: socket | None, setup: wire.Setup) -> None:
        self.state = State.STARTING
        self.body: Body | None = None
        """What runs in it."""
        self.tasks = 0
        """How many it has run."""
        self.leave_by = NEVER
        """When a child that was told to end is killed."""
        self.was_killed = False
        self.is_over = False
        """It has ended, and is still to be buried."""
        self.did_not_hear = False
        """It ended without having read all that it was told."""
        self._frames = wire.Frames()
        self._unsent = b""
        self.control, theirs = socketpair()
        life, self._life = os.pipe()
        try:
            names = [] if name is None else [name.fileno()]
            given = [theirs.fileno(), life, *names]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dispatcher.child", *map(str, given)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=given,
                start_new_session=True,
            )
            bind(life, self.pid)
        except BaseException:
            self.control.close()
            os.close(self._life)
            raise
        finally:
            theirs.close()
            os.close(life)
        self.printed = tuple(
            Printed(pipe.fileno(), name)
            for pipe, name in ((self._process.stdout, "stdout"), (self._process.stderr, "stderr"))
            if pipe
        )
        self.end = _end_of(self.pid)
        self.control.setblocking(False)
        self.send(setup)

    def __repr__(self) -> str:
        return f"<Child {self.pid} {self.state.value}, {self.tasks} tasks>"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def files(self) -> list[int]:
        """What it may have something to read from."""
        ends = [] if self.end is None else [self.end]
        return [self.control.fileno(), *(printed.file for printed in self.printed), *ends]

    @property
    def is_sending(self) -> bool:
        """Is there more to send than the wire took?"""
        return bool(self._unsent)

    def send(self, message: wire.ToChild) -> None:
        self._unsent += wire.frame(message)
        self.send_on()

    def send_on(self) -> None:
        """Send as much as the wire takes now. What a dead child is told is lost; that it is dead is heard elsewhere."""
        try:
            sent = self.control.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self.did_not_hear = True
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]

    def receive(self) -> list[wire.FromChild]:
        """Return the messages that are whole now. Raises `EOFError` at the end, and `BlockingIOError`."""
        try:
            data = self.control.recv(READ_BYTES)
        except ConnectionResetError:
            # The kernel's word for an end that was closed with something left to read.
            self.did_not_hear = True
            data = b""
        if not data:
            raise EOFError
        try:
            return [wire.FROM_CHILD.decode(each) for each in self._frames.feed(data)]
        except (DecodeError, ValueError):
            # Its body has found the wire, and nothing on it can be trusted any more.
            self.kill()
            raise EOFError from None

    def begin(self, body: Body) -> None:
        """Run the body of a claim."""
        self.state = State.BUSY
        self.body = body
        for printed in self.printed:
            if printed.tail:
                printed.tail.clear()
        claim = body.held.claim
        self.send(wire.Run(claim.id, claim.attempt, claim.kind, claim.input, body.begin_by))

    def leave(self, by: float) -> None:
        """Let it end by itself, until then: no more tasks."""
        self.state = State.LEAVING
        self.leave_by = by
        with suppress(OSError):
            self.control.shutdown(1)

    def terminate(self, *, timed_out: bool) -> None:
        """Ask its body to stop."""
        self.send(wire.Stop(timed_out))
        if self._process.returncode is None:
            # Its body may have become another user's program.
            with suppress(PermissionError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it, and everything that its bodies have started in its process group."""
        self.was_killed = True
        self.leave_by = NEVER
        self._kill_group()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def reap(self) -> int:
        """Return the exit status of a child that has ended, -9 for SIGKILL; what it started ends now."""
        # While it is not waited for, its number is nobody else's.
        self._kill_group()
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(REAP_SECONDS)
        return -signal.SIGKILL

    def crash(self, status: int) -> tuple[str, str]:
        """Return reason and detail for the task whose body it ran when it ended by itself."""
        detail = f"process {self.pid}"
        if self.was_killed:
            reason = "worker process closed its connection"
        elif status >= 0:
            reason = f"worker process exited with status {status}"
        else:
            reason = f"worker process killed by {_signal(-status)}"
            if status == -signal.SIGKILL:
                detail += "; not by this dispatcher: perhaps the system ran out of memory"
        tail = "\n".join(self.printed[-1].tail)
        return reason, f"{detail}; it wrote last:\n{tail}" if tail else detail

    def obituary(self, status: int) -> str:
        """Say in one line how it ended."""
        reason, detail = self.crash(status)
        return f"{reason}; {detail}".replace("\n", " / ")

    def _kill_group(self) -> None:
        if self._process.returncode is None:
            # Elsewhere than on Linux a group of which only a dead process is left may not be signaled.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of every file, after the last was read."""
        self.control.close()
        os.close(self._life)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()
        if self.end is not None:
            os.close(self.end)


def _end_of(pid: int) -> int | None:
    """Return a file that the kernel says of when the process ends, though what it started holds its files open."""
    with suppress(AttributeError, OSError):
        return os.pidfd_open(pid)
    return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

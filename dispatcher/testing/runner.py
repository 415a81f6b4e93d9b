"""Runs what is queued, one task after another, in the calling thread: a dispatcher of one slot, without its waits.

All that is written is written by the database's own functions, as a dispatcher writes it: it registers and publishes
its kinds, claims, runs the body, writes the outcome or asks for another attempt, and leaves. What waits for its time is
let go once there is nothing else to do, the first that is due first, as if that time had passed.

It differs from a dispatcher's process in this. A kind of slot "process" runs in this process, as every kind does. A
time limit raises the cancel flag, and nothing stops a body that does not look. And a body that ends its process, by
`os._exit` or a segfault, ends the tests.
"""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, current_thread, main_thread
from time import monotonic, sleep
from types import FrameType
from typing import Final
from uuid import uuid4

from dispatcher.claims import Claims
from dispatcher.context import Cancel
from dispatcher.endings import Limits, run_body
from dispatcher.kinds import KINDS
from dispatcher.lanes import Locked
from dispatcher.messages import VERDICTS, Claim, Outcome, Refusal
from dispatcher.outcomes import tell
from dispatcher.publishing import published
from dispatcher.sessions import Caller, Database
from dispatcher.writes import LOCKED, refuse, unstorable, write
from sql.errors import RowRefused
from sql.settings import Settings

LOCKED_SECONDS: Final = 5.0
"""So long may another session hold a task's row when its outcome is written."""


@contextmanager
def running(url: str, queue: str, settings: Settings, cancels: dict[int, Cancel]) -> Iterator["Runner"]:
    """Enter as a dispatcher, yield what runs tasks, and leave.

    `cancels` holds the cancel flag of the task that runs, by its id, for whoever cancels it meanwhile.
    """
    caller = Caller(Database(url, uuid4(), settings.connect, settings.statement), "tests")
    try:
        caller.call("lock_dispatcher")
        # It says nothing of its place: only its lock proves that it lives, and it is held.
        here = {"host": socket.gethostname(), "boot_id": "", "network_namespace": "", "pid": os.getpid()}
        caller.call("register_dispatcher", **here, slots=1, queue=queue)
        caller.call("publish_kinds", kinds=published(KINDS))
        yield Runner(caller, queue, settings, cancels)
        caller.call("leave_dispatcher")
    finally:
        caller.close()


class Runner:
    """What a dispatcher of one slot does, a step at a time."""

    def __init__(self, caller: Caller, queue: str, settings: Settings, cancels: dict[int, Cancel]) -> None:
        self._caller = caller
        self._queue = queue
        self._limits = Limits(settings.max_depth, settings.max_result_bytes, settings.max_detail_bytes)
        self._cancels = cancels
        self._claims = Claims(caller, queue, lambda: False)

    def run_next(self) -> int | None:
        """Run one attempt and return its task's id; None where nothing can be claimed, and nothing waits for its time.

        Raises `TallyError` when the database does not answer, and KeyboardInterrupt for a Ctrl-C that came meanwhile.
        """
        task_id = self._take()
        if task_id is None and self._caller.call("bring_forward", queue=self._queue):
            self._caller.call("release_due_tasks", queue=self._queue, limit=1, excluded="{}", only=None)
            task_id = self._take()
        return task_id

    def _take(self) -> int | None:
        # The whole queue, each time: what was committed late lies behind the cursor.
        self._claims.cursor.sweep()
        for taken in self._claims.take(1):
            if isinstance(taken, Refusal):
                tell(taken, refuse(self._caller, taken))
                self._claims.forget(taken.id)
            else:
                self._write(self._run(taken))
            return taken.id
        return None

    def _run(self, claim: Claim) -> Outcome:
        cancel = self._cancels[claim.id] = Cancel()
        task = KINDS.get(claim.kind)
        limit = None if task is None else task.options.time_limit_seconds
        try:
            with interruptible_by_ctrl_c(), _limited(cancel, limit):
                return run_body(claim, cancel, KINDS, self._limits)
        finally:
            del self._cancels[claim.id]

    def _write(self, outcome: Outcome) -> None:
        end = monotonic() + LOCKED_SECONDS
        while True:
            try:
                ((written, verdict),) = write(self._caller, [outcome])
            except RowRefused:
                if outcome.result is None:
                    raise
                outcome = unstorable(outcome)
                continue
            if verdict != LOCKED:
                tell(written, VERDICTS[verdict])
                return
            if monotonic() > end:
                raise Locked(outcome.id)
            sleep(0.01)


@contextmanager
def _limited(cancel: Cancel, seconds: float | None) -> Iterator[None]:
    """Raise the flag when so much time has passed inside."""

    def pass_limit() -> None:
        cancel.timed_out = True
        cancel.set()

    if seconds is None:
        yield
        return
    timer = Timer(seconds, pass_limit)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def interruptible_by_ctrl_c() -> Iterator[None]:
    """Let a Ctrl-C end the body inside, and then the test: a body's own KeyboardInterrupt is an outcome like any."""
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(before):
        yield
        return
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt

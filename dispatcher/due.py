"""Tasks that wait for the time of their next attempt: released when it comes, for whoever claims first.

The database says how long until the next is due, and so does its answer to every attempt that another is to follow: the
loop's wait ends then. Other dispatchers' tasks, and what recovery returned, are found by looking: often where a
kind of this dispatcher may be attempted again, seldom where none may, since one that could be once may have left tasks
that wait. A release that takes too long is one row's doing: then one known task is released at a time, and the one that
takes all its time alone is set aside for growing periods. One that fails otherwise is put off. Claims go on meanwhile.
"""

import logging
from collections.abc import Callable
from threading import Lock
from typing import Final

from dispatcher.retry import Aside, is_timeout, may_be_one_rows
from dispatcher.sessions import Caller
from sql.arrays import numbers
from sql.errors import TallyError

log = logging.getLogger("tally.loop")

MOST: Final = 1000
"""So many in one call; claims go on before the next one."""

AGAIN_SECONDS: Final = 1.0
"""How soon to come back to what is due and was not released: somebody holds it locked, or the database refuses it."""

ALONE_SECONDS: Final = 1.0
"""So long is one known task released at a time, where a release of all took too long: then claims go on."""


class DueTasks:
    """Released by the loop alone; `expect` may be called from any thread."""

    def __init__(self, caller: Caller, queue: str, look_seconds: float, clock: Callable[[], float]) -> None:
        self._caller = caller
        self._queue = queue
        self._look_seconds = look_seconds
        self._clock = clock
        self._aside: Aside[str] = Aside(clock)
        self._slow: Aside[int] = Aside(clock)
        self._lock = Lock()
        self._due_at = self._not_before = clock()

    @property
    def next_at(self) -> float:
        """When to release the next time, by the clock."""
        return max(self._due_at, self._not_before)

    def expect(self, seconds: float) -> None:
        """A task will be due in so many seconds."""
        with self._lock:
            self._due_at = min(self._due_at, self._clock() + seconds)

    def release(self) -> bool:
        """Release what is due; was there anything? Raises what concerns more than some rows."""
        with self._lock:
            # Before the call: what comes to wait while it runs is expected, and not forgotten.
            self._due_at = self._clock() + self._look_seconds
        try:
            released, next_seconds = self._release(None)
        except TallyError as error:
            self.expect(0)
            if is_timeout(error):
                return self._release_one_by_one()
            if not may_be_one_rows(error):
                raise
            seconds = self._aside.put(self._queue)
            self._not_before = self._clock() + seconds
            log.warning("due.failed seconds=%.0f error=%s", seconds, error)
            return False
        if next_seconds is not None:
            more = 0.0 if released == MOST else AGAIN_SECONDS
            self.expect(next_seconds if next_seconds > 0 else more)
        return bool(released)

    def _release(self, only: int | None) -> tuple[int, float | None]:
        ((released, next_seconds),) = self._caller.call(
            "release_due_tasks",
            queue=self._queue,
            limit=MOST,
            excluded=numbers(self._slow.held()),
            only=None if only is None else numbers([only]),
        )
        return released, next_seconds

    def _release_one_by_one(self) -> bool:
        """Release one known task at a time, up to the first that takes all its time: that one is set aside."""
        rows = self._caller.call("due_tasks", queue=self._queue, excluded=numbers(self._slow.held()), limit=MOST)
        end = self._clock() + ALONE_SECONDS
        for nth, (task,) in enumerate(rows):
            if self._clock() > end:
                break
            try:
                self._release(task)
            except TallyError as error:
                if not is_timeout(error):
                    raise
                seconds = self._slow.put(task)
                log.warning("due.failed task=%d seconds=%.0f error=%s", task, seconds, error)
                return nth > 0
        return bool(rows)

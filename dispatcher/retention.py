"""Keeps the tables from growing for ever: removes what is old, and has told who keeps dead rows from being vacuumed.

Every dispatcher tries; the one whose session got the lock does it, and another once that session is gone. It walks the
tasks upward in order of id and removes those that ended longer than the period ago, a small batch at a time, each a
transaction of its own. Open rows, and rows that somebody holds locked or that a trigger protects, are passed over; the
next walk, which begins at the lowest id again, finds what has become of them. No index serves this: it would cost
every finish, and the oldest rows lie where the walk begins.

It takes a tenth of the time, so that claims hardly notice: after each step it rests nine times as long as the step
took, and after the walk as long as all its steps had taken together, nine times. A batch that fails as a whole (a
trigger that sleeps, or refuses at the commit) is tried again by halves; the row that fails alone is stepped over.

Nothing depends on any of this. What fails is logged, ever more seldom, and tried again; it has a thread and a
connection of its own, no turns are expected of it, and nobody waits for its end.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Final

from dispatcher.retry import may_be_one_rows
from dispatcher.sessions import Caller
from dispatcher.threats import Threat, Threats
from sql.errors import DatabaseLost, Misconfigured, TallyError

log = logging.getLogger("tally.retention")

LOOK_SECONDS: Final = 10.0
BATCH: Final = 500
REST: Final = 9
"""How many times as long as it works it rests."""


class Walk:
    """One walk from the lowest id to the first row that is too young: where it is, and how far it steps; no I/O."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._worked_seconds = 0.0
        self.after, self.limit = 0, batch
        self.is_over = False
        self.removed = self.refused = 0

    def went(self, reached: int | None, *, is_over: bool) -> None:
        """A step was made, up to this id; None where there was no row."""
        self.after = self.after if reached is None else reached
        self.is_over = is_over
        self.limit = min(2 * self.limit, self._batch)

    def failed(self, reached: int, *, is_over: bool) -> None:
        """A step failed: make a smaller one, or step over the one row that fails alone."""
        if self.limit > 1:
            self.limit //= 2
        else:
            self.after, self.is_over = reached, is_over

    def rest_seconds(self, worked_seconds: float) -> float:
        """Return how long to rest after a step that took so long."""
        self._worked_seconds += worked_seconds
        return REST * (self._worked_seconds if self.is_over else worked_seconds)


class Retention:
    """Looks every ten seconds, and steps as often as it may; runs on a thread of its own.

    `keep`: how long an ended task stays, None for ever.
    """

    def __init__(
        self, caller: Caller, keep: timedelta | None, *, look_seconds: float = LOOK_SECONDS, batch: int = BATCH
    ) -> None:
        self._caller = caller
        self._keep = keep
        self._look_seconds = look_seconds
        self._batch = batch
        self._walk = Walk(batch)
        self._threats = Threats(monotonic)
        self._look_at = self._step_at = monotonic() + look_seconds
        """When the next look, and the next step, are due. Not at once: a start has more urgent things to do."""
        self._failures = self._refusals = 0
        self.stop = Event()

    def run(self) -> None:
        """Look and remove until told to stop."""
        try:
            while not self.stop.wait(max(0.0, min(self._look_at, self._step_at) - monotonic())):
                self._survive(self._turn)
        finally:
            # The lock with it: another dispatcher takes over.
            self._caller.close()

    def _turn(self) -> None:
        now = monotonic()
        looks, steps = now >= self._look_at, now >= self._step_at
        # Also where it fails, or is another's to do.
        self._look_at = now + self._look_seconds if looks else self._look_at
        self._step_at = now + self._look_seconds if steps else self._step_at
        ((is_ours,),) = self._caller.call("hold_retention")
        if is_ours and steps:
            self._survive(self._remove)
        if is_ours and looks:
            self._survive(self._look)

    def _survive(self, call: Callable[[], None]) -> None:
        try:
            call()
        except DatabaseLost:
            pass  # Others of this process say it.
        except TallyError as error:
            self._failures += 1
            if _is_seldom(self._failures):
                log.warning("retention.failed times=%d error=%s", self._failures, error)
        except Exception:  # a bug of ours here is no reason to end a dispatcher
            log.exception("retention.failed")

    def _look(self) -> None:
        self._threats.tell([Threat(*row) for row in self._caller.call("queue_threats")])

    def _remove(self) -> None:
        """Make a step of the walk; at its end begin the next, and remove dispatchers."""
        if self._keep is None:
            return
        began, walk = monotonic(), self._walk
        self._step(walk, self._keep)
        if walk.is_over:
            self._walk = Walk(self._batch)
            self._refusals *= walk.refused > 0
            ((dispatchers,),) = self._caller.call("remove_dispatchers", keep=self._keep, limit=self._batch)
            if walk.removed or dispatchers:
                log.info("retention.removed tasks=%d dispatchers=%d", walk.removed, dispatchers)
        self._failures = 0
        rest = walk.rest_seconds(monotonic() - began)
        self._step_at = monotonic() + (max(rest, self._look_seconds) if walk.is_over else rest)

    def _step(self, walk: Walk, keep: timedelta) -> None:
        ((reached, old, is_over),) = self._caller.call("old_tasks", after=walk.after, limit=walk.limit, keep=keep)
        try:
            verdicts = [verdict for (verdict,) in self._caller.call("remove_tasks", ids=old, keep=keep)] if old else []
        except TallyError as error:
            if isinstance(error, Misconfigured) or not may_be_one_rows(error):
                raise
            self._tell_refused(walk, len(old), str(error))
            walk.failed(reached, is_over=is_over)
        else:
            walk.removed += verdicts.count("removed")
            if refused := [verdict for verdict in verdicts if verdict.startswith("refused")]:
                self._tell_refused(walk, len(refused), refused[0].removeprefix("refused: "))
            walk.went(reached, is_over=is_over)

    def _tell_refused(self, walk: Walk, tasks: int, why: str) -> None:
        walk.refused += tasks
        self._refusals += 1
        if _is_seldom(self._refusals):
            log.warning("retention.refused times=%d tasks=%d error=%s", self._refusals, tasks, why)


def _is_seldom(times: int) -> bool:
    """The first ones, and then ever fewer."""
    return times & (times - 1) == 0

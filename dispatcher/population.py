"""How many children there are to be: as many as can run at once, more while claims wait, never more than slots.

Sans I/O: it is told what there is and answers how many to start now. A start takes about as long as `PATIENCE_SECONDS`,
so bodies that are done sooner than that wait for each other, and the others get a child each. So many are started at
a time as there are processors. After a child that failed for no task's fault, the next is started later each time.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dispatcher.ladder import NEVER
from sql.connect import backoff_seconds

PATIENCE_SECONDS: Final = 0.2
LONGEST_BACKOFF: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Crowd:
    """What there is now."""

    starting: int
    free: int
    busy: int
    waiting: int
    """Claims in line."""
    none_free_since: float
    """Since when the first of them waits; where none does, since when the last free child is busy."""

    @property
    def children(self) -> int:
        return self.starting + self.free + self.busy

    @property
    def missing(self) -> int:
        """How many more it takes for every claim to have one, and one to spare."""
        return self.waiting + 1 - self.free - self.starting


class Population:
    """Of the children of one dispatcher. No clock of its own."""

    def __init__(self, slots: int, processors: int) -> None:
        self._slots = slots
        self._processors = processors
        self._failures = 0
        self._not_before = 0.0

    @property
    def least(self) -> int:
        return min(self._slots, self._processors)

    def failed(self, now: float) -> None:
        """A child ended, or could not be started, for no task's fault."""
        self._failures += 1
        self._not_before = now + backoff_seconds(self._failures, LONGEST_BACKOFF)

    def succeeded(self) -> None:
        self._failures = 0

    def to_start(self, crowd: Crowd, now: float) -> int:
        """Return how many to start now."""
        if now < self.next_at(crowd):
            return 0
        return min(
            max(self.least - crowd.children, crowd.missing),
            self._slots - crowd.children,
            self._processors - crowd.starting,
        )

    def next_at(self, crowd: Crowd) -> float:
        """Return when there is one to be started, unless something happens before."""
        if crowd.children >= self._slots or crowd.starting >= self._processors:
            return NEVER
        if crowd.children < self.least:
            return self._not_before
        if crowd.missing > 0:
            return max(self._not_before, crowd.none_free_since + PATIENCE_SECONDS)
        return NEVER

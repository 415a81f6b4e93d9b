"""Who threatens the queue by holding a snapshot or notifications: told in the log, and when it is over.

Nobody is ended for it: a report or a dump may be worth more than its price. But until it ends every dead row stays and
every statement has more to walk past, or the server's notification queue fills; so it is named while it lasts, after
one, two, four minutes and ever more seldom.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

log = logging.getLogger("tally.retention")

FIRST_PERIOD_SECONDS: Final = 60.0
LONGEST_PERIOD_SECONDS: Final = 3600.0


class Threat(NamedTuple):
    """A row of `queue_threats`: a session, a prepared transaction or a replication slot, as one look saw it."""

    holds: str
    pid: int | None
    name: str
    user: str | None
    database: str | None
    since: str | None
    state: str | None
    transactions: int | None
    query: str | None

    @property
    def identity(self) -> "Identity":
        return (self.holds, self.pid, self.name, self.since)


Identity = tuple[str, int | None, str, str | None]


@dataclass(slots=True)
class Said:
    """When a threat is to be told again."""

    again_at: float
    period_seconds: float


class Threats:
    """What was told of each, and is to be told again; for one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said: dict[Identity, Said] = {}

    def tell(self, found: list[Threat]) -> None:
        """Tell of those found by one look, as far as it is time for it, and of those that are gone."""
        now = self._clock()
        for threat in found:
            said = self._said.setdefault(threat.identity, Said(now, FIRST_PERIOD_SECONDS))
            if now >= said.again_at:
                said.again_at = now + said.period_seconds
                said.period_seconds = min(2 * said.period_seconds, LONGEST_PERIOD_SECONDS)
                log.warning(
                    "queue.threatened holds=%s pid=%s name=%r user=%s database=%s since=%s "
                    "state=%r transactions=%s query=%r",
                    *threat,
                )
        for gone in self._said.keys() - {threat.identity for threat in found}:
            del self._said[gone]
            log.info("queue.relieved holds=%s pid=%s name=%r since=%s", *gone)

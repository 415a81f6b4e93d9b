"""Clients that submit all the time, and how long they were all without an accepted submit."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from time import monotonic
from typing import Final

from tests.support.clients import repeating
from tests.support.service import Service
from tests.support.waiting import wait_until

PROMISED_SECONDS: Final = 1.0
"""No migration stops traffic for longer: docs/upgrade.md."""
CLIENTS: Final = 4
PAUSE_SECONDS: Final = 0.03


class Traffic:
    """What the clients saw: for each, the moments of its 202s."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._accepted: list[list[float]] = [[] for _ in range(CLIENTS)]

    @property
    def accepted(self) -> int:
        return sum(map(len, self._accepted))

    def flows(self, more: int = 2) -> None:
        """Wait until each client has been accepted so many times more."""
        before = [len(moments) for moments in self._accepted]
        wait_until(
            lambda: all(len(now) >= was + more for now, was in zip(self._accepted, before, strict=True)),
            "each client's submits are accepted",
            seen=lambda: self.service.book[-CLIENTS:],
        )

    def longest_gap(self, since: float, until: float) -> float:
        """Return the longest time within these moments in which no submit at all was accepted, in seconds."""
        within = sorted(at for moments in self._accepted for at in moments if since <= at <= until)
        return max(later - earlier for earlier, later in pairwise([since, *within, until]))

    def longest_claim_gap(self) -> float:
        """Return the longest time between two claims so far, in seconds."""
        started = "select started_at, lag(started_at) over (order by started_at) as before from tally.task"
        gap = self.service.database.value(
            f"select max(extract(epoch from started_at - before)) from ({started}) as claim"
        )
        return float(gap)

    def submit(self, client: int) -> None:
        if self.service.submit().status == 202:
            self._accepted[client].append(monotonic())


@contextmanager
def traffic(service: Service) -> Iterator[Traffic]:
    """While inside, clients submit to `service.web`, whichever that is at the time."""
    flowing = Traffic(service)
    with repeating([partial(flowing.submit, client) for client in range(CLIENTS)], PAUSE_SECONDS):
        flowing.flows()
        yield flowing

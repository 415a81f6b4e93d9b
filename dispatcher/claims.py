"""Claims what fits, and knows what to do when a claim fails.

A claim call has a number of its own, stored on the rows it takes. If its reply is lost, nobody knows which rows
those are: until `settle_claim` has told, no other claim is made. An error that says the world is away changes
nothing: the tasks stay QUEUED. An error about what was to be written, or a timeout, may be one task's doing: then
the same candidates are tried one at a time, each that is refused alone becomes a `Refusal`, and each that runs out
of time alone is set aside for a growing period, while the others go on.
"""

import logging
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

from dispatcher.messages import Claim, Refusal
from dispatcher.retry import Aside, is_timeout
from dispatcher.sessions import Caller
from sql.errors import DatabaseAway, DatabaseLost, Misconfigured, RowRefused

log = logging.getLogger("tally.claims")

CAUTION_SECONDS: Final = 10.0
"""How long tasks are claimed one at a time after a batch ran out of time."""


class Claims:
    """The claims of one dispatcher on one queue; used by its loop alone."""

    def __init__(
        self,
        caller: Caller,
        queue: str,
        is_stopping: Callable[[], bool],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._caller = caller
        self._queue = queue
        self._is_stopping = is_stopping
        self._clock = clock
        self._number = 0
        self._refused: set[int] = set()
        self._aside: Aside[int] = Aside(clock)
        self._cautious_until = clock()
        self.unsettled: int | None = None
        """The number of the claim whose reply was lost."""
        self.is_full = True
        """Did the last claim take all it asked for, so that there may be more?"""

    def take(self, free: int) -> Iterator[Claim | Refusal]:
        """Claim up to `free` tasks, by priority and position, each yielded as soon as it is committed.

        While a claim is unsettled, settles it instead: yields exactly its rows. A `Refusal` is a task whose claim
        the database refuses; it is passed over until `forget`.
        Raises `DatabaseAway`, `Condemned`, and `Misconfigured` when no task at all may be claimed.
        """
        if self.unsettled is not None:
            yield from self._settle(self.unsettled)
            return
        if self._clock() >= self._cautious_until:
            try:
                claims = self._claim(free)
            except (RowRefused, Misconfigured) as error:
                log.warning("claim.refused number=%d error=%s", self._number, error)
            except DatabaseAway as error:
                if not is_timeout(error):
                    raise
                log.warning("claim.timed_out number=%d", self._number)
                self._cautious_until = self._clock() + CAUTION_SECONDS
                if isinstance(error, DatabaseLost):
                    raise
            else:
                self.is_full = len(claims) == free
                yield from claims
                return
        yield from self._take_one_by_one(free)

    def forget(self, task_id: int) -> None:
        """A refused task's failure is written, or needs no writing: it may be claimed again, if it can."""
        self._refused.discard(task_id)

    def is_current(self, claim: Claim) -> bool | None:
        """Is this claim still current? None: this dispatcher was stopped. Raises `DatabaseAway`."""
        ((may_go_on, current),) = self._caller.call("current_claim", id=claim.id, attempt=claim.attempt)
        return bool(current) if may_go_on else None

    def _claim(self, free: int, only: list[int] | None = None) -> list[Claim]:
        self._caller.ready()
        self._number += 1
        asked_at = self._clock()
        try:
            rows = self._caller.call(
                "claim_tasks",
                number=self._number,
                queue=self._queue,
                free=free,
                after_positions="{}",
                excluded=[*self._refused, *self._aside.held()],
                only=only,
            )
        except DatabaseLost:
            self.unsettled = self._number
            log.warning("claim.unsettled number=%d", self._number)
            raise
        return [Claim(*(*row, asked_at)) for row in rows]

    def _settle(self, number: int) -> Iterator[Claim]:
        asked_at = self._clock()
        rows = self._caller.call("settle_claim", number=number)
        self.unsettled = None
        self.is_full = True
        log.info("claim.settled number=%d tasks=%d", number, len(rows))
        yield from (Claim(*(*row, asked_at)) for row in rows)

    def _take_one_by_one(self, free: int) -> Iterator[Claim | Refusal]:
        candidates = [
            task_id
            for (task_id,) in self._caller.call(
                "claimable_tasks", queue=self._queue, excluded=[*self._refused, *self._aside.held()], limit=free
            )
        ]
        claimed = moved = False
        forbidden: list[tuple[int, Misconfigured]] = []
        for task_id in candidates:
            if self._is_stopping():
                return
            try:
                claims = self._claim(1, only=[task_id])
            except RowRefused as error:
                moved = True
                yield self._refuse(task_id, error)
            except Misconfigured as error:
                forbidden.append((task_id, error))
            except DatabaseAway as error:
                if not is_timeout(error):
                    raise
                moved = True
                log.warning("claim.set_aside task=%d seconds=%.0f", task_id, self._aside.put(task_id))
                if isinstance(error, DatabaseLost):
                    raise
            else:
                claimed = claimed or bool(claims)
                yield from claims
        # Where nothing moved, somebody holds them all locked, and another round at once would find the same.
        self.is_full = len(candidates) == free and (claimed or moved)
        if forbidden and not claimed:
            # Not one could be claimed: this is about the installation, not about these tasks.
            raise forbidden[0][1]
        for task_id, reason in forbidden:
            yield self._refuse(task_id, reason)

    def _refuse(self, task_id: int, error: Exception) -> Refusal:
        log.warning("claim.refused task=%d error=%s", task_id, error)
        self._refused.add(task_id)
        return Refusal(task_id, str(error))

"""Claims what fits, and knows what to do when a claim fails.

A claim call has a number of its own, stored on the rows it takes. If its reply is lost, nobody knows which rows
those are: until `settle_claim` has told, no other claim is made. A database that cannot be reached, or is read-only,
changes nothing: the tasks stay QUEUED. Any other error may be one task's doing: then candidates are tried one at a
time. Each that is refused alone becomes a `Refusal`, and each that runs out of time alone is set aside for a growing
period, while the others go on. What may be about the world as well (a lock, a resource, a missing privilege) sets a
task aside too, if another could be claimed in the same round. It never fails one: the world may have changed in the
midst of the round.
"""

import json
import logging
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Final

from dispatcher.clock import clock_with_sleep
from dispatcher.cursor import Cursor
from dispatcher.messages import Claim, Refusal
from dispatcher.retry import Aside, is_one_rows, is_timeout, may_be_one_rows
from dispatcher.sessions import Caller
from sql.connect import Connection
from sql.errors import Condemned, DatabaseAway, DatabaseLost, TallyError

log = logging.getLogger("tally.claims")

CAUTION_SECONDS: Final = 10.0
"""How long tasks are claimed one at a time after a batch ran out of time."""

MANY: Final = 8
"""So many are tried, even for one free slot: a fault of one task is not taken for a fault of the world."""

_PLACE: Final = itemgetter(4, 5)
"""Of a row of `claim_tasks`: its priority and position."""

MOST: Final = 256
"""Where none could be claimed, twice as many are tried the next time, up to this: they may be all of one kind."""


class Claims:
    """The claims of one dispatcher on one queue; used by its loop alone."""

    def __init__(
        self,
        caller: Caller,
        queue: str,
        is_stopping: Callable[[], bool],
        clock: Callable[[], float] = clock_with_sleep,
    ) -> None:
        self._caller = caller
        self.queue: Final = queue
        self._is_stopping = is_stopping
        self._clock = clock
        self._number = 0
        self._refused: set[int] = set()
        self._width = MANY
        self._passed_over: set[int] = set()
        self._aside: Aside[int] = Aside(clock)
        self._cautious_until = clock()
        self.cursor: Final = Cursor()
        self._connection: Connection | None = None
        """The one that the cursor's positions were read by."""
        self.unsettled: int | None = None
        """The number of the claim whose reply was lost."""
        self.is_full = True
        """Did the last claim take all it asked for, so that there may be more?"""
        self.look_again = True
        """Is there a reason to claim again at once: the last claim was full, or it is the first that was not?

        Only that one's commit tells the others that this dispatcher waits to be woken; what was submitted just before
        is found by one more."""

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
            except TallyError as error:
                if not may_be_one_rows(error):
                    raise
                self._be_careful(error)
            else:
                was_full, self.is_full = self.is_full, len(claims) == free
                self.look_again = was_full or self.is_full
                self.cursor.passed(claims, is_full=self.is_full)
                yield from claims
                return
        yield from self._take_one_by_one(free)

    def pass_on_wake(self) -> None:
        """Woken by name, and unable to claim: let another be woken instead. Raises `DatabaseAway`."""
        self._caller.call("pass_on_wake", queue=self.queue)

    def forget(self, task_id: int) -> None:
        """A refused task's failure is written, or needs no writing: it may be claimed again, if it can."""
        self._refused.discard(task_id)

    def renewed(self, claim: Claim) -> Claim | None:
        """Ask again whether this claim is current, and return it as known now; None where it is not.

        Raises `Condemned` once this dispatcher is stopped, and `DatabaseAway`.
        """
        asked_at = self._clock()
        ((may_go_on, current),) = self._caller.call("current_claim", id=claim.id, attempt=claim.attempt)
        if not may_go_on:
            raise Condemned("stopped before a claim was begun")
        return claim._replace(known_at=asked_at) if current else None

    def _claim(self, free: int, only: list[int] | None = None) -> list[Claim]:
        connection = self._caller.ready()
        if connection is not self._connection:
            # Whichever call lost the one before: a server that took over may draw positions anew.
            self._connection = connection
            self.cursor.forget()
        self._number += 1
        excluded = self._excluded()
        if not self._passed_over.issubset(excluded):
            # What is excluded no more may lie behind the cursor.
            self.cursor.sweep()
        self._passed_over = set(excluded)
        asked_at = self._clock()
        try:
            rows = self._caller.call(
                "claim_tasks",
                number=self._number,
                queue=self.queue,
                free=free,
                after_positions=json.dumps(self.cursor.after_positions() if only is None else {}),
                excluded=excluded,
                only=only,
            )
        except DatabaseAway as error:
            self.cursor.forget()
            if isinstance(error, DatabaseLost):
                self.unsettled = self._number
                log.warning("claim.unsettled number=%d", self._number)
            raise
        rows.sort(key=_PLACE)
        claims = [Claim(*(*row, asked_at)) for row in rows]
        if any(self._aside.remembers(claim.id) for claim in claims):
            # Perhaps it was the table that was locked, and not their rows.
            self._aside.clear()
        return claims

    def _settle(self, number: int) -> Iterator[Claim]:
        asked_at = self._clock()
        rows = self._caller.call("settle_claim", number=number)
        self.unsettled = None
        self.look_again = self.is_full = True
        log.info("claim.settled number=%d tasks=%d", number, len(rows))
        yield from (Claim(*(*row, asked_at)) for row in rows)

    def _be_careful(self, error: TallyError) -> None:
        if not is_timeout(error):
            # What it is about is said of the task, or of the world, once that is known.
            log.debug("claim.refused number=%d error=%s", self._number, error)
            return
        log.warning("claim.timed_out number=%d", self._number)
        self._cautious_until = self._clock() + CAUTION_SECONDS
        if isinstance(error, DatabaseLost):
            raise error

    def _take_one_by_one(self, free: int) -> Iterator[Claim | Refusal]:
        limit = max(free, self._width)
        candidates = self._caller.call("claimable_tasks", queue=self.queue, excluded=self._excluded(), limit=limit)
        taken, claimed, moved = 0, False, False
        unclear: dict[int, TallyError] = {}
        for task_id, attempt in candidates:
            if self._is_stopping():
                return
            if taken == free:
                break
            try:
                claims = self._claim(1, only=[task_id])
            except TallyError as error:
                if not may_be_one_rows(error):
                    raise
                if is_one_rows(error):
                    taken, moved = taken + 1, True
                    yield self._refuse(task_id, attempt, error)
                elif is_timeout(error):
                    moved = True
                    self._set_aside(task_id, error)
                else:
                    unclear[task_id] = error
            else:
                taken, claimed, moved = taken + len(claims), claimed or bool(claims), moved or bool(claims)
                yield from claims
        # Where nothing moved, somebody holds them all locked, and another round at once would find the same.
        self.look_again = self.is_full = taken == free or (len(candidates) == limit and moved)
        if unclear and not claimed:
            # Not one could be claimed: this is about the installation or the world, not about these tasks.
            self._width = min(2 * self._width, MOST)
            raise next(iter(unclear.values()))
        self._width = MANY
        for task_id, reason in unclear.items():
            self._set_aside(task_id, reason)

    def _excluded(self) -> list[int]:
        return [*self._refused, *self._aside.held()]

    def _set_aside(self, task_id: int, error: TallyError) -> None:
        log.warning("claim.set_aside task=%d seconds=%.0f error=%s", task_id, self._aside.put(task_id), error)
        if isinstance(error, DatabaseLost):
            raise error

    def _refuse(self, task_id: int, attempt: int, error: Exception) -> Refusal:
        log.warning("claim.refused task=%d error=%s", task_id, error)
        self._refused.add(task_id)
        return Refusal(task_id, str(error), attempt)

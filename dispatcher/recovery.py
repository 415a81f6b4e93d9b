"""Who is dead, and what becomes of their tasks: this dispatcher as a judge of the others.

Nobody is judged by subtracting stored times; a judge watches. Two proofs:

(a) exited: the suspect ran in the judge's own place (same boot, same network namespace), nobody holds its name
    any more, and its lock is free.
(b) lost: its lock is free, and its beat was seen unchanged for the whole grace period by this judge, looking every
    second on one unbroken session with no gap over two beats.

A database restart thus condemns nobody who is back within the grace period: a judge that lost its own session
starts watching anew. At every look the rows of dispatchers that are stopped or unknown are recovered; those that
somebody holds locked are left for the next look. Nothing here delays claiming: it has a thread and a connection
of its own.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Event
from time import monotonic
from typing import Final, Literal
from uuid import UUID

from tenacity import RetryError

from dispatcher.presence import Place, is_name_free
from dispatcher.retry import reconnect
from dispatcher.sessions import Caller
from sql.errors import DatabaseAway, DatabaseLost, TallyError

log = logging.getLogger("tally.recovery")

LOOK_SECONDS: Final = 1.0
LONGEST_ASIDE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Suspect:
    """A dispatcher that has not stopped, as one look saw it."""

    id: UUID
    beat: int
    host: str
    pid: int
    place: Place
    locked: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a suspect is dead, in words, and whether its process is proven gone."""

    why: Literal["exited", "lost"]
    text: str


class Watch:
    """What one judge has seen of the others, on one unbroken session; no database, no clock of its own."""

    def __init__(self, here: Place, grace: timedelta, beat: timedelta) -> None:
        self._here = here
        self._grace_seconds = grace.total_seconds()
        self._longest_gap_seconds = 2 * max(beat.total_seconds(), LOOK_SECONDS)
        self._seen: dict[UUID, tuple[int, float]] = {}
        self._looked_at: float | None = None

    def forget(self) -> None:
        """The session broke: what was seen before proves nothing."""
        self._seen.clear()
        self._looked_at = None

    def judge(
        self, suspects: list[Suspect], now: float, is_name_free: Callable[[UUID], bool]
    ) -> list[tuple[Suspect, Proof]]:
        """Look once; return those who are proven dead."""
        if self._looked_at is not None and now - self._looked_at > self._longest_gap_seconds:
            self.forget()
        self._looked_at = now
        seen: dict[UUID, tuple[int, float]] = {}
        dead = []
        for suspect in suspects:
            if suspect.locked:
                continue
            beat, since = self._seen.get(suspect.id, (suspect.beat, now))
            seen[suspect.id] = (suspect.beat, since if beat == suspect.beat else now)
            unchanged_seconds = now - seen[suspect.id][1]
            if suspect.place.shares_names_with(self._here) and is_name_free(suspect.id):
                text = "its process is gone: on this machine nobody holds its name, and its lock is free"
                dead.append((suspect, Proof("exited", text)))
            elif unchanged_seconds >= self._grace_seconds:
                text = f"its lock is free and its beat was seen unchanged for {unchanged_seconds:.1f} s"
                dead.append((suspect, Proof("lost", text)))
        self._seen = seen
        return dead


class Recovery:
    """Looks every second; runs on a thread of its own."""

    def __init__(self, caller: Caller, watch: Watch, backoff: timedelta) -> None:
        self._caller = caller
        self._watch = watch
        self._backoff = backoff
        self._looked = False
        self._aside: dict[UUID, tuple[float, float]] = {}  # holder to (until, period)
        self.stop = Event()

    def run(self) -> None:
        """Judge until told to stop."""
        while not self.stop.wait(LOOK_SECONDS if self._looked else 0):
            try:
                for attempt in reconnect(self.stop, self._backoff.total_seconds()):
                    with attempt:
                        self._look()
            except RetryError:
                break
        self._caller.close()

    def _look(self) -> None:
        try:
            rows = self._caller.call("living_dispatchers")
            suspects = [
                Suspect(id_, beat, host, pid, Place(boot_id, namespace), locked)
                for id_, beat, host, pid, boot_id, namespace, locked in rows
            ]
            for suspect, proof in self._watch.judge(suspects, monotonic(), is_name_free):
                self._try(suspect.id, partial(self._condemn, suspect, proof))
            for (holder,) in self._caller.call("stopped_holders"):
                self._try(holder, partial(self._recover, holder))
        except DatabaseAway:
            self._watch.forget()
            raise
        self._looked = True

    def _try(self, holder: UUID, act: Callable[[], None]) -> None:
        """Act on one holder's rows. An error stops nobody else; it is said, and come back to ever more seldom.

        Ever more seldom, because a row that runs out of time at every look would make every look late, and a watch
        with such gaps proves nothing about anybody.
        """
        until, period = self._aside.get(holder, (0.0, LOOK_SECONDS))
        if monotonic() < until:
            return
        try:
            act()
        except DatabaseLost:
            raise
        except TallyError as error:
            period = min(2 * period, LONGEST_ASIDE_SECONDS)
            self._aside[holder] = (monotonic() + period, period)
            log.warning("recovery.failed holder=%s again_seconds=%.0f error=%s", holder, period, error)
        else:
            self._aside.pop(holder, None)

    def _recover(self, holder: UUID) -> None:
        self._tell(holder, self._caller.call("recover_tasks", dispatcher=holder))

    def _condemn(self, suspect: Suspect, proof: Proof) -> None:
        # What its process left behind on the server may hold row locks until its statement ends.
        self._caller.call("end_backends", prefix=f"tally:{suspect.id}:")
        written = self._caller.call(
            "condemn_dispatcher",
            dispatcher=suspect.id,
            beat=suspect.beat,
            why=proof.why,
            proof=f"{proof.text}; judged by dispatcher {self._caller.dispatcher}",
        )
        log.warning("dispatcher.condemned dispatcher=%s why=%s proof=%s", suspect.id, proof.why, proof.text)
        self._tell(suspect.id, written)

    def _tell(self, holder: UUID, written: list[tuple[int, str]]) -> None:
        for task_id, state in written:
            log.warning("task.recovered task=%d state=%s holder=%s", task_id, state, holder)

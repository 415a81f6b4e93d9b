"""Who is dead: what one judge has seen of the other dispatchers, and what that proves.

Nobody is judged by subtracting stored times; a judge watches. Two proofs:

(a) exited: the suspect ran in the judge's own place (same boot, same network namespace), nobody holds its name
    any more, and its lock is free.
(b) lost: its lock is free, and its beat was seen unchanged for the whole grace period by this judge, looking every
    second on one unbroken session with no gap over two beats.

A database restart thus condemns nobody who is back within the grace period: a judge that lost its own session
starts watching anew.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal
from uuid import UUID

from dispatcher.presence import Place

LOOK_SECONDS: Final = 1.0


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

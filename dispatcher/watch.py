"""Who is dead: what one judge has seen of the other dispatchers, and what that proves.

Nobody is judged by subtracting stored times; a judge watches, looking every second on one unbroken session with no
gap over two beats. Three proofs:

(a) exited: the suspect ran in the judge's own place (same boot, same network namespace), nobody holds its name
    any more, and its lock is free.
(b) lost: its lock was free at every look, and its beat unchanged, for the whole grace period.
(c) lost: its beat was unchanged for the whole stall limit though its lock is held: it is frozen, or cut off. Then its
    sessions are to be ended before it is condemned.

One whose lock comes and goes does not escape: there are looks that find it free for the whole grace period, or one
that finds it held after the stall limit. A lock that was found held, however, gives it the whole grace period
anew: a suspect that has just lost its session may be about to open the next. A judge that lost its own session, or
could not beat itself (the database answers, but cannot be written), starts watching anew: an outage condemns nobody
who is back within the grace period.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, NamedTuple
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
    ends_sessions: bool = False
    """Is it proof only once the suspect's sessions are gone, and its lock with them?"""


class Seen(NamedTuple):
    """What looks without a gap have seen of one suspect, up to the last."""

    beat: int
    unchanged_since: float
    free_since: float | None
    """Since when its lock was free at every look; None where the last one found it held."""


class Watch:
    """What one judge has seen of the others, on one unbroken session; no database, no clock of its own."""

    def __init__(self, here: Place, grace: timedelta, stall: timedelta, beat: timedelta) -> None:
        self._here = here
        self._grace_seconds = grace.total_seconds()
        self._stall_seconds = stall.total_seconds()
        self._longest_gap_seconds = 2 * max(beat.total_seconds(), LOOK_SECONDS)
        self._seen: dict[UUID, Seen] = {}
        self._looked_at: float | None = None
        self._attending_since: float | None = None

    def forget(self) -> None:
        """The session broke: what was seen before proves nothing."""
        self._seen.clear()
        self._looked_at = None

    def judge(
        self, suspects: list[Suspect], now: float, attending_since: float | None, is_name_free: Callable[[UUID], bool]
    ) -> list[tuple[Suspect, Proof]]:
        """Look once; return those who are proven dead.

        `attending_since`: since when the judge's own beats have all gone through, None while they do not.
        """
        has_gap = self._looked_at is not None and now - self._looked_at > self._longest_gap_seconds
        if has_gap or attending_since != self._attending_since:
            self.forget()
        self._looked_at, self._attending_since = now, attending_since
        # Whoever is not among them any more is forgotten.
        self._seen = {suspect.id: _seen(self._seen.get(suspect.id), suspect, now) for suspect in suspects}
        proofs = ((suspect, self._proof(suspect, now, is_name_free)) for suspect in suspects)
        proven = [(suspect, proof) for suspect, proof in proofs if proof is not None]
        if attending_since is None:
            self.forget()
            return [(suspect, proof) for suspect, proof in proven if proof.why == "exited"]
        return proven

    def _proof(self, suspect: Suspect, now: float, is_name_free: Callable[[UUID], bool]) -> Proof | None:
        _, unchanged_since, free_since = self._seen[suspect.id]
        if free_since is None:
            unchanged_seconds = now - unchanged_since
            if unchanged_seconds < self._stall_seconds:
                return None
            text = f"its lock was held, but its beat was seen unchanged for {unchanged_seconds:.1f} s"
            return Proof("lost", f"(c) frozen or cut off: {text}; its sessions were ended first", ends_sessions=True)
        if suspect.place.shares_names_with(self._here) and is_name_free(suspect.id):
            text = "its process is gone: on this machine nobody holds its name, and its lock is free"
            return Proof("exited", f"(a) exited: {text}")
        if now - free_since < self._grace_seconds:
            return None
        text = f"its lock is free and its beat was seen unchanged for {now - free_since:.1f} s"
        return Proof("lost", f"(b) lost: {text}")


def _seen(before: Seen | None, suspect: Suspect, now: float) -> Seen:
    """Add one look to what was seen before."""
    if before is None or before.beat != suspect.beat:
        before = Seen(suspect.beat, now, now)
    if suspect.locked:
        return Seen(before.beat, before.unchanged_since, None)
    return Seen(before.beat, before.unchanged_since, now if before.free_since is None else before.free_since)

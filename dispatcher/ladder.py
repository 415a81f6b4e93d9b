"""What is done to a body that is to stop, and when: asked by SIGTERM, and after a grace ended by SIGKILL.

It is to stop when its time limit has passed, or when its cancel was accepted, whichever comes first. For a body in a
process; a body in a thread can only be told (see `dispatcher.timers`). Moments are the monotonic clock's.
"""

from signal import Signals
from typing import Final

from dispatcher.messages import Ending

NEVER: Final = float("inf")


class Ladder:
    """Of one body. No clock of its own."""

    __slots__ = ("_due_at", "_grace_seconds", "_limit_at", "sent", "timed_out")

    def __init__(self, began_at: float, limit_seconds: float | None, grace_seconds: float) -> None:
        self._limit_at = self._due_at = NEVER if limit_seconds is None else began_at + limit_seconds
        self._grace_seconds = grace_seconds
        self.sent: Signals | None = None
        """The last rung that was reached."""
        self.timed_out = False
        """Was it the time limit that it was to stop for?"""

    def __repr__(self) -> str:
        return f"<Ladder due_at={self._due_at} sent={self.sent} timed_out={self.timed_out}>"

    @property
    def due_at(self) -> float:
        """When something is to be done next."""
        return self._due_at

    def cancel(self, now: float) -> None:
        """Its cancel was accepted; to be told so again changes nothing."""
        if self.sent is None:
            self._due_at = min(self._due_at, now)

    def step(self, now: float) -> Signals | None:
        """Return the signal to be sent now, if any, for sent."""
        if now < self._due_at:
            return None
        if self.sent is None:
            self.sent = Signals.SIGTERM
            self.timed_out = now >= self._limit_at
            self._due_at = now + self._grace_seconds
        else:
            self.sent = Signals.SIGKILL
            self._due_at = NEVER
        return self.sent

    def ending(self, own: Ending) -> Ending:
        """Return how the body ended, which says by itself that it stopped, returned, raised or died."""
        if own is Ending.STOPPED and self.sent is not None:
            return Ending.SIGTERM
        return own

    def ending_by(self, status: int) -> Ending:
        """Return how the body ended whose process has, with this exit status."""
        if self.sent is not None and status == -self.sent:
            return Ending.SIGTERM if self.sent is Signals.SIGTERM else Ending.SIGKILL
        return Ending.DIED

"""By when a stop must be over: the deadlines of a drain.

The first signal begins it: bodies have until `give_up_at`, and the process is gone by `end_at`, whatever happens; the
time between the two is kept for writing what did not end. A second signal gives up at once.
"""

from datetime import timedelta

NEVER = float("inf")


class Drain:
    """Moments of the monotonic clock; no clock of its own."""

    def __init__(self, whole: timedelta, reserve: timedelta) -> None:
        self._whole_seconds = whole.total_seconds()
        self._reserve_seconds = reserve.total_seconds()
        self.has_begun = False
        self.give_up_at = NEVER
        self.end_at = NEVER

    def __repr__(self) -> str:
        return f"<Drain begun={self.has_begun} give_up_at={self.give_up_at} end_at={self.end_at}>"

    def ask(self, now: float, asked_at: float) -> bool:
        """Hear a signal that came at `asked_at`. Returns whether it began the drain."""
        if not self.has_begun:
            self.has_begun = True
            self.end_within(self._whole_seconds, asked_at)
            self.give_up_at = self.end_at - self._reserve_seconds
            return True
        if self.give_up_at > now:
            self.give_up_at = now
            self.end_within(self._reserve_seconds, now)
        return False

    def end_whole(self, now: float) -> None:
        """End at the latest after a whole drain from now, though there was no signal."""
        self.end_within(self._whole_seconds, now)

    def end_within(self, seconds: float, since: float) -> None:
        """End at the latest so long after a moment."""
        self.end_at = min(self.end_at, since + seconds)

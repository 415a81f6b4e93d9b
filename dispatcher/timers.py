"""The time limits of bodies in threads: whose has passed, and when the next one does.

A body in a thread cannot be ended. It is told that its time has passed, by its flag, and keeps its slot until it ends.
"""

from collections.abc import Callable
from threading import Lock

from dispatcher.held import Held
from dispatcher.ladder import NEVER


class Timers:
    """Of the bodies that run; as many as there are slots at most, so that all may be looked at. No clock of its own."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """`ring` is called where the next one passes sooner than whoever waits for it knows."""
        self._ring = ring
        self._ends: dict[Held, float] = {}
        self._awaited_at = NEVER
        self._lock = Lock()

    def begin(self, held: Held, ends_at: float) -> None:
        with self._lock:
            self._ends[held] = ends_at
            sooner = ends_at < self._awaited_at
        if sooner:
            self._ring()

    def end(self, held: Held) -> None:
        """The body has ended, in time or not."""
        with self._lock:
            self._ends.pop(held, None)

    def next_at(self) -> float:
        """Return when the next one passes; whoever asks waits for that, and rings are about what is sooner."""
        with self._lock:
            self._awaited_at = min(self._ends.values(), default=NEVER)
            return self._awaited_at

    def passed(self, now: float) -> list[Held]:
        """Return those whose time has passed, once each."""
        with self._lock:
            passed = [held for held, ends_at in self._ends.items() if ends_at <= now]
            for held in passed:
                del self._ends[held]
        return passed

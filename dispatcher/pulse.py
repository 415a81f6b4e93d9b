"""Do the dispatcher's threads still make turns? What decides whether it may go on beating.

Each watched thread says `turn` at every turn of its loop. Whoever watches calls `stalled` about once a second; the
silence of a thread grows by the time between those calls, but by no more than a few seconds for each: time in
which nothing ran (the process was stopped, the machine slept) counts against nobody.
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

LONGEST_GAP_SECONDS: Final = 2.0


class Pulse:
    """The silence of each watched thread, in seconds, as one watcher has seen it."""

    def __init__(self, names: list[str], stall_seconds: float, clock: Callable[[], float]) -> None:
        self._silence = dict.fromkeys(names, 0.0)
        self._stall_seconds = stall_seconds
        self._clock = clock
        self._looked_at = clock()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Pulse {self._silence}>"

    def turn(self, name: str) -> None:
        """A thread made a turn."""
        self._silence[name] = 0.0

    def stalled(self) -> list[str]:
        """Return the threads that have made no turn for the stall limit."""
        with self._lock:
            now = self._clock()
            gap = min(now - self._looked_at, LONGEST_GAP_SECONDS)
            self._looked_at = now
            for name in self._silence:
                self._silence[name] += gap
            return [name for name, seconds in self._silence.items() if seconds >= self._stall_seconds]

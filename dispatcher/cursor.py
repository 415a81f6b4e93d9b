"""Where claims go on in the queue, so that none reads again what was claimed before it.

Positions are drawn in ascending order: what lies below the last one claimed of a priority has been claimed too. A claim
goes on there, which costs the same however many dead index entries lie behind. What was passed over all the same
(committed late, or locked by somebody) is found by a hint, which lowers the cursor, or by the next sweep, which looks
from the start.
"""

from collections.abc import Iterable
from threading import Lock
from typing import Final

from dispatcher.messages import Claim

MOST_PRIORITIES: Final = 32
"""Each is a range of its own for every claim: a thousand of them take 50 ms, and fifty thousand a statement's time."""


class Cursor:
    """The last position claimed, for each priority; used by the loop alone, but for `hint`."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._sweeps = True
        self._hint: int | None = None
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Cursor {self._positions}>"

    def hint(self, position: int) -> None:
        """Nothing lower than this has come; safe to call from any thread."""
        with self._lock:
            # One number, however many come before the next claim: with every slot busy that may be hours away.
            self._hint = position if self._hint is None else min(position, self._hint)

    def sweep(self) -> None:
        """Let the next claim look from the start."""
        self._sweeps = True

    def after_positions(self) -> dict[int, int]:
        """Return, for each priority, the position at and below which the next claim need not look."""
        with self._lock:
            lowest, self._hint = self._hint, None
        if lowest is not None:
            self._positions = {priority: min(last, lowest - 1) for priority, last in self._positions.items()}
        return {} if self._sweeps else self._positions

    def forget(self) -> None:
        """The database was away. After a failover positions may be drawn anew."""
        self._positions.clear()
        self._sweeps = True

    def passed(self, claims: Iterable[Claim], *, is_full: bool) -> None:
        """A claim by these positions is committed: remember where it got to. `claims` are in claiming order.

        One that was full has not looked behind its last task: where it began at the start, there may be more between
        that and the place that was remembered.
        """
        last = {claim.priority: claim.position for claim in claims}
        if self._sweeps and is_full and last:
            end = max(last)
            self._positions = {priority: at for priority, at in self._positions.items() if priority < end}
        for priority, position in last.items():
            # Taken out and put in again: those that were claimed last stand last.
            self._positions[priority] = max(position, self._positions.pop(priority, position))
        for priority in list(self._positions)[:-MOST_PRIORITIES]:
            # It is looked at from its start.
            del self._positions[priority]
        self._sweeps = False

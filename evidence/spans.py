"""How many tasks were RUNNING at once, by the times in their rows: all of one clock, the database's."""

from collections.abc import Iterable
from datetime import datetime

from evidence.record import Row


def most_at_once(tasks: Iterable[Row]) -> int:
    """Return how many of these terminal tasks were RUNNING at once, at most; one that was never claimed is none."""
    claimed = [row for row in tasks if row["started_at"]]
    began = [(datetime.fromisoformat(row["started_at"]), 1) for row in claimed]
    ended = [(datetime.fromisoformat(row["finished_at"]), -1) for row in claimed]
    most = now = 0
    for _, change in sorted(began + ended):
        now += change
        most = max(most, now)
    return most

"""What a subject returns: a table for people, which is also JSON for comparing, and perhaps a plot."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

NOT_RUN: Final = "NOT_RUN"


@dataclass(frozen=True)
class Plot:
    """Lines to draw: by name, the points from left to right."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    logarithmic: bool = False
    """The x axis."""


@dataclass(frozen=True)
class Table:
    """`rows`: for each figure one value a repetition, none where it was not run; `notes` say why, and how else."""

    title: str
    rows: dict[str, list[float]]
    notes: list[str] = field(default_factory=list)
    plot: Plot | None = None

    def __str__(self) -> str:
        lines = [f"## {self.title}", "", "| | median | from | to | runs |", "|---|--:|--:|--:|--:|"]
        lines += [f"| {name} | {' | '.join(cells(values))} |" for name, values in self.rows.items()]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([*lines, "", *notes, ""] if notes else [*lines, ""])


def cells(values: Sequence[float]) -> list[str]:
    """Return median, least, most, and how many values there are."""
    if not values:
        return [NOT_RUN, "", "", "0"]
    return [*map(shown, (median(values), min(values), max(values))), str(len(values))]


def shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratios(above: Iterable[float], below: Iterable[float]) -> list[float]:
    """Return the quotients, turn by turn; none where one side was not run."""
    return [one / other for one, other in zip(above, below, strict=False)]


def percentile(values: Sequence[float], point: float) -> float:
    """Return the value that `point` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * point / 100) - 1)]


def distribution(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return, for every percent but the last, the value that so many do not exceed: a line to draw."""
    return [(percentile(values, point), point) for point in range(1, 100)]

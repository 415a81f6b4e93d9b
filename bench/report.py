"""What a measurement returns, as a table for people and as JSON for comparing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Table:
    """`samples`: each repetition's figure, shown as median and spread; `figures`: single ones."""

    title: str
    samples: dict[str, list[float]]
    figures: dict[str, float]

    def __str__(self) -> str:
        lines = [f"## {self.title}", ""]
        lines += [
            f"- {name}: {median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f}, {len(values)} runs)"
            for name, values in self.samples.items()
        ]
        lines += [f"- {name}: {value:,.2f}" for name, value in self.figures.items()]
        return "\n".join([*lines, ""])


def percentile(values: Sequence[float], point: float) -> float:
    """Return the value that `point` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * point / 100) - 1)]

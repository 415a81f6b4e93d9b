"""Backlog: what a claim costs while more and more is queued."""

from statistics import median
from typing import Final

from bench.bare import BareLoop, bare_loop
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Plot, Table

RATIO: Final = "dearest / cheapest of the three"
CLAIMS: Final = 50
"""At each level, after as many that are not counted."""


def measure(stage: Stage, sizes: Sizes) -> Table:
    """The queue is filled up from level to level in every turn, so that none is measured after a longer one."""
    costs: dict[int, list[float]] = {sizes.backlog // part: [] for part in (100, 10, 1)}
    for _ in range(sizes.repeat):
        stage.empty()
        for level, values in costs.items():
            (queued,) = stage.run("queued")
            stage.fill(level - queued)
            with bare_loop(stage, sizes.slots) as loop:
                _milliseconds(loop)
                values.append(_milliseconds(loop))
    rows = {f"{level:,} queued, ms": values for level, values in costs.items()}
    rows[RATIO] = [max(turn) / min(turn) for turn in zip(*costs.values(), strict=True)]
    line = [(float(level), median(values)) for level, values in costs.items()]
    plot = Plot("cost of a claim", "tasks queued", "milliseconds", {f"claim of {sizes.slots}": line}, logarithmic=True)
    return Table(f"one claim of {sizes.slots}, by backlog", rows, [f"each the median of {CLAIMS} claims"], plot)


def _milliseconds(loop: BareLoop) -> float:
    """Return what a claim costs; what is claimed is finished between, and not counted."""
    costs = []
    for _ in range(CLAIMS):
        costs.append(1000 * loop.claim())
        if loop.claimed:
            loop.finish()
    return median(costs)

"""Text: the drain of text.stats on 1 kB texts, results stored, against the drain of no-op tasks."""

import json
from typing import Final

from bench.drain import Fill, drain_rate
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table, ratios

TEXT: Final = " ".join(["alpha naïve queue 日本語 of the Straße worker x"] * 20)
RATIO: Final = "text.stats / no-op"


def measure(stage: Stage, sizes: Sizes) -> Table:
    noop, stats = [], []
    for _ in range(sizes.repeat):
        noop.append(drain_rate(stage, Fill(sizes.tasks), sizes.best_slots))
        stats.append(drain_rate(stage, Fill(sizes.tasks, "text.stats", json.dumps({"text": TEXT})), sizes.best_slots))
    return Table(
        f"drain {sizes.tasks:,} tasks text.stats of {len(TEXT.encode()):,} bytes, {sizes.best_slots} slots",
        {"no-op, tasks/s": noop, "text.stats, tasks/s": stats, RATIO: ratios(stats, noop)},
    )

"""Two dispatchers on one queue against one."""

from typing import Final

from bench.drain import Fill, drain_rate
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table, ratios

RATIO: Final = "two / one"


def measure(stage: Stage, sizes: Sizes) -> Table:
    one, two = [], []
    for _ in range(sizes.repeat):
        one.append(drain_rate(stage, Fill(sizes.tasks), sizes.slots))
        two.append(drain_rate(stage, Fill(sizes.tasks), sizes.slots, dispatchers=2))
    return Table(
        f"drain {sizes.tasks:,} no-op tasks, {sizes.slots} slots each",
        {"one dispatcher, tasks/s": one, "two dispatchers, tasks/s": two, RATIO: ratios(two, one)},
    )

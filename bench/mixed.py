"""Mixed: producers over HTTP, none of them held back, and one dispatcher, for some seconds."""

from typing import Final

from bench.load import rate, tool
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table, ratios

LONGER: Final = 2.5
"""Than a run of `submit`, so that a backlog would show."""
PRODUCED, CONSUMED, RATIO = "produced, tasks/s", "consumed, tasks/s", "consumed / produced"


def measure(stage: Stage, sizes: Sizes) -> Table:
    produced, consumed = [], []
    seconds = LONGER * sizes.seconds
    with stage.web() as (_, address), stage.dispatcher(sizes.slots):
        for _ in range(sizes.repeat):
            stage.empty()
            produced.append(rate(address, sizes.producers, seconds))
            (ended,) = stage.run("finished_since", seconds=seconds)
            consumed.append(ended / seconds)
            stage.drained()
    return Table(
        f"{sizes.producers} producers and one dispatcher with {sizes.slots} slots, at once, {seconds:g} s",
        {PRODUCED: produced, CONSUMED: consumed, RATIO: ratios(consumed, produced)},
        [f"load: {tool()}; it shares the machine"],
    )

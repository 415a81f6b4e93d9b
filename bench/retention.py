"""Retention: the claim latency at 1,000 tasks a second while old tasks are being removed, against while they are not.

From the making of a task to its claim, as the database recorded them. Half of the turns without removal come before
those with it, half after.
"""

import time
from statistics import mean
from typing import Final

from bench.bare import submit
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table, percentile, ratios

TASKS, EVERY_SECONDS = 10, 0.01
"""So many at a time."""
LONGER: Final = 2
"""Than a run of `submit`."""
REMOVAL_BEGINS_SECONDS: Final = 60.0
POINTS: Final = (50, 99)
WITHOUT, WITH = "nothing removed", "while removing"


def measure(stage: Stage, sizes: Sizes) -> Table:
    stage.empty()
    stage.run("fill_old", tasks=sizes.old_tasks)
    stage.settle()
    waited: dict[str, list[list[float]]] = {WITHOUT: [], WITH: []}
    seconds = LONGER * sizes.seconds
    with stage.dispatcher(sizes.slots, TALLY_KEEP="forever"):
        waited[WITHOUT] += [_latencies(stage, seconds) for _ in range((sizes.repeat + 1) // 2)]
    with stage.dispatcher(sizes.slots, TALLY_KEEP="7d"):
        lowest = _await_removal(stage)
        began = time.monotonic()
        waited[WITH] += [_latencies(stage, seconds) for _ in range(sizes.repeat)]
        removed = (stage.run("lowest_id")[0] - lowest) / (time.monotonic() - began)
    with stage.dispatcher(sizes.slots, TALLY_KEEP="forever"):
        waited[WITHOUT] += [_latencies(stage, seconds) for _ in range(sizes.repeat // 2)]
    rows = {
        f"{name}, p{point}, ms": [percentile(each, point) for each in runs]
        for name, runs in waited.items()
        for point in POINTS
    }
    rows |= {f"{name}, mean, ms": [mean(each) for each in runs] for name, runs in waited.items()}
    for point in POINTS:
        rows[ratio(point)] = ratios(rows[f"{WITH}, p{point}, ms"], rows[f"{WITHOUT}, p{point}, ms"])
    rows["removed, tasks/s"] = [removed]
    stage.empty()
    title = f"claim latency at {TASKS / EVERY_SECONDS:,.0f} tasks/s, {sizes.old_tasks:,} old tasks, {sizes.slots} slots"
    return Table(title, rows)


def ratio(point: int) -> str:
    return f"{WITH} / {WITHOUT}, p{point}"


def _await_removal(stage: Stage) -> int:
    """Wait until tasks are being removed; returns the lowest id that is left then."""
    (before,) = stage.run("lowest_id")
    end = time.monotonic() + REMOVAL_BEGINS_SECONDS
    while stage.run("lowest_id") == (before,):
        assert time.monotonic() < end, "nothing is removed"
        time.sleep(0.1)
    return int(stage.run("lowest_id")[0])


def _latencies(stage: Stage, seconds: float) -> list[float]:
    """Submit for so long at a steady pace; return the milliseconds that each task waited for its claim."""
    (last,) = stage.run("last_id")
    began = time.monotonic()
    for turn in range(max(1, round(seconds / EVERY_SECONDS))):
        time.sleep(max(0.0, began + turn * EVERY_SECONDS - time.monotonic()))
        submit(stage.connection, TASKS)
    stage.drained()
    return [waited for (waited,) in stage.rows("claim_latencies", id=last)]

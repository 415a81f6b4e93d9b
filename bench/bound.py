"""Bound: what a submit costs where nine tenths of a queue's capacity are taken, against an empty queue.

Three queues of one table, by turns; and, before it is filled, the empty table. What was submitted is removed after each
turn, so that the tenth that is free stays free.
"""

from statistics import mean, median
from time import perf_counter
from typing import Final

from bench.bare import submit
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table, ratios

SUBMITS: Final = 300
"""In one turn, but at most a third of what the smaller queue has room for."""
EMPTY: Final = "empty queue"
SMALLER, LARGER = f"smaller / {EMPTY}", f"larger / {EMPTY}"


def measure(stage: Stage, sizes: Sizes) -> Table:
    capacities = (sizes.max_open // 100, sizes.max_open)
    submits = min(SUBMITS, max(1, capacities[0] // 30))
    smaller, larger = (f"nine tenths of {most:,}" for most in capacities)
    stage.empty()
    for queue, most in zip((EMPTY, smaller, larger), (capacities[1], *capacities), strict=True):
        stage.query("set_max_open", queue=queue, max_open=most)
    fresh = [median(_milliseconds(stage, EMPTY, submits)) for _ in range(sizes.repeat)]
    for queue, most in zip((smaller, larger), capacities, strict=True):
        stage.fill(most * 9 // 10, queue=queue)
    costs: dict[str, list[list[float]]] = {EMPTY: [], smaller: [], larger: []}
    for _ in range(sizes.repeat):
        for queue, turns in costs.items():
            turns.append(_milliseconds(stage, queue, submits))
    rows = {"empty table, median, ms": fresh}
    rows |= {f"{queue}, median, ms": [median(turn) for turn in turns] for queue, turns in costs.items()}
    rows |= {f"{queue}, mean, ms": [mean(turn) for turn in turns] for queue, turns in costs.items()}
    for ratio, queue in ((SMALLER, smaller), (LARGER, larger)):
        rows[ratio] = ratios(rows[f"{queue}, median, ms"], rows[f"{EMPTY}, median, ms"])
    stage.empty()
    return Table(f"one submit, a transaction, {submits} in a turn", rows)


def _milliseconds(stage: Stage, queue: str, submits: int) -> list[float]:
    (position,) = stage.run("last_position")
    costs = []
    for _ in range(submits):
        began = perf_counter()
        submit(stage.connection, queue=queue)
        costs.append(1000 * (perf_counter() - began))
    stage.run("trim", queue=queue, position=position)
    return costs

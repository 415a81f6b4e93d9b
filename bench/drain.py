"""Drain: queued no-op tasks through one dispatcher, against a bare loop of the same two statements, by number of slots.

The bare loop is one psycopg connection that claims and finishes batches of as many tasks as the dispatcher has
slots, by the same functions and in as many transactions. The dispatcher is up and waits while its queue is paused: its
clock runs from the first claim to the last outcome, both as the database recorded them.
"""

import time
from contextlib import ExitStack
from statistics import median
from typing import Final, NamedTuple

from bench.bare import bare_loop
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table, ratios

TIMES: Final = (1, 4, 16, 32)
"""Of the slots that were asked for: 32, 128, 512, 1024."""
RATIO: Final = "dispatcher / bare loop"
"""With the slots that were asked for."""


class Fill(NamedTuple):
    """What is queued."""

    tasks: int
    kind: str = "noop"
    input_text: str = "{}"


def measure(stage: Stage, sizes: Sizes) -> Table:
    rows: dict[str, list[float]] = {}
    rates: dict[int, list[float]] = {}
    for slots in (times * sizes.slots for times in TIMES):
        bare: list[float] = []
        rates[slots] = []
        for _ in range(sizes.repeat):
            bare.append(bare_rate(stage, sizes.tasks, slots))
            rates[slots].append(drain_rate(stage, Fill(sizes.tasks), slots))
        rows[f"bare loop, batch {slots}, tasks/s"] = bare
        rows[f"dispatcher, {slots} slots, tasks/s"] = rates[slots]
        rows[RATIO if slots == sizes.slots else f"{RATIO}, {slots} slots"] = ratios(rates[slots], bare)
    best = max(rates, key=lambda slots: median(rates[slots]))
    return Table(f"drain {sizes.tasks:,} no-op tasks", rows, [f"fastest here: {best} slots"])


def bare_rate(stage: Stage, tasks: int, batch: int) -> float:
    """Return the rate of the bare loop, its last and empty claim included."""
    stage.empty()
    stage.fill(tasks)
    with bare_loop(stage, batch) as loop:
        began, done = time.perf_counter(), 0
        while loop.claim() and loop.claimed:
            loop.finish()
            done += len(loop.claimed)
        took = time.perf_counter() - began
    assert done == tasks
    return tasks / took


def drain_rate(stage: Stage, fill: Fill, slots: int, dispatchers: int = 1) -> float:
    """Return the rate at which so many dispatchers, all waiting, drain a queue that is opened to them at once."""
    stage.empty()
    stage.fill(fill.tasks, kind=fill.kind, input_text=fill.input_text)
    stage.query("pause_queue", queue="default")
    with ExitStack() as running:
        for _ in range(dispatchers):
            running.enter_context(stage.dispatcher(slots))
        stage.query("resume_queue", queue="default")
        stage.drained()
    succeeded, seconds = stage.run("succeeded")
    assert succeeded == fill.tasks
    return float(fill.tasks / seconds)

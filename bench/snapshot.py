"""Snapshot: what claim, finish and submit cost while another session holds a snapshot, so that no dead row can go.

By the bare loop, which has the dispatcher's cursor, with a submit now and then; and by a dispatcher as a whole. The
last tenth of the tasks against the first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Final

from bench.bare import bare_loop, submit
from bench.drain import Fill, drain_rate
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Plot, Table, ratios

STEPS: Final = ("claim", "finish", "submit")
DISPATCHER: Final = "dispatcher"
SLOTS_TIMES: Final = 4
"""More slots than elsewhere, to be done sooner."""
BATCHES_A_SUBMIT: Final = 2
POINTS: Final = 50
"""In the plot."""


def measure(stage: Stage, sizes: Sizes) -> Table:
    costs: dict[str, list[list[float]]] = {step: [] for step in STEPS}
    tenths, slots = [], SLOTS_TIMES * sizes.slots
    for _ in range(sizes.repeat):
        stage.empty()
        stage.fill(sizes.old_snapshot)
        with _held_snapshot(stage):
            for step, values in _costs(stage, sizes.old_snapshot, slots).items():
                costs[step].append(values)
        with _held_snapshot(stage):
            drain_rate(stage, Fill(sizes.old_snapshot), slots)
            tenths.append([1e7 * seconds / sizes.old_snapshot for (seconds,) in stage.rows("tenths")])
    rows: dict[str, list[float]] = {}
    for step, runs in costs.items():
        _compare(rows, step, "ms", [_tenths(values) for values in runs])
    _compare(rows, DISPATCHER, "microseconds a task", tenths)
    share = 100 / POINTS
    lines = {
        step: [(share * (at + 1), median(part)) for at, part in enumerate(_parts(runs[-1], POINTS))]
        for step, runs in costs.items()
    }
    plot = Plot("under an old snapshot", f"percent of {sizes.old_snapshot:,} tasks", "milliseconds", lines)
    title = f"{sizes.old_snapshot:,} tasks under another session's snapshot, {slots} a claim"
    return Table(title, rows, [], plot)


def ratio(step: str) -> str:
    return f"{step}: last tenth / first"


@contextmanager
def _held_snapshot(stage: Stage) -> Iterator[None]:
    with stage.connect() as connection:
        connection.execute(b"set idle_in_transaction_session_timeout = 0")
        connection.execute(b"begin isolation level repeatable read")
        # Of no table, or it could not be emptied.
        connection.execute(b"select 1")
        yield
        connection.execute(b"rollback")


def _costs(stage: Stage, tasks: int, batch_size: int) -> dict[str, list[float]]:
    """Return the milliseconds of each step, in order."""
    costs: dict[str, list[float]] = {step: [] for step in STEPS}
    batches = -(-tasks // batch_size)
    with stage.connect() as connection, bare_loop(stage, batch_size) as loop:
        for batch in range(batches):
            costs["claim"].append(1000 * loop.claim())
            costs["finish"].append(1000 * loop.finish())
            if batch % BATCHES_A_SUBMIT == 0:
                began = perf_counter()
                submit(connection)
                costs["submit"].append(1000 * (perf_counter() - began))
        while loop.claim() and loop.claimed:
            loop.finish()
    return costs


def _compare(rows: dict[str, list[float]], step: str, unit: str, tenths: list[list[float]]) -> None:
    rows[f"{step}, first tenth, {unit}"] = first = [each[0] for each in tenths]
    rows[f"{step}, last tenth, {unit}"] = last = [each[-1] for each in tenths]
    rows[ratio(step)] = ratios(last, first)


def _tenths(values: list[float]) -> list[float]:
    return [median(part) for part in _parts(values, 10)]


def _parts(values: list[float], count: int) -> list[list[float]]:
    """Cut values, in their order, into so many parts of about the same length, none of them empty."""
    count = min(count, len(values))
    return [values[len(values) * at // count : len(values) * (at + 1) // count] for at in range(count)]

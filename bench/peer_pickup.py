"""Peer pick-up: from just before a submit to the beginning of its body, others and we, by turns and idle.

Theirs is the call of the product's own client, which writes to the store itself; ours is a POST, so the way through
HTTP is in our figure alone. Each waits at the setting that is natural for single jobs, not at the one that drains best.
"""

from itertools import chain
from pathlib import Path
from typing import Final

from bench.peers import CELERY, GRAPHILE, OURS, PGQUEUER, by_turns, described
from bench.pickup import SLOTS
from bench.products import Product
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Plot, Table, distribution, percentile, ratios

HOW: Final = {
    PGQUEUER: "batches of 10, its default",
    CELERY: "prefork -c 2, late acknowledgement; Redis keeps nothing on disk, so it is shown and not counted",
    GRAPHILE: "concurrency 8, no local queue, so that a completion is written before the next job",
}
DURABLE: Final = (PGQUEUER, GRAPHILE)
POINTS: Final = (50, 99)


def measure(stage: Stage, sizes: Sizes) -> Table:
    def waited(name: str, product: Product, mark: Path) -> list[float]:
        return product.picked_up(sizes.submits, mark)

    found, not_run = by_turns(stage, sizes, waited)
    rows = {
        row(name, point): [percentile(each, point) for each in runs] for name, runs in found.items() for point in POINTS
    }
    for point in POINTS:
        durable = [rows[row(name, point)] for name in DURABLE if found[name]]
        rows[ratio(point)] = ratios(rows[row(OURS, point)], map(min, zip(*durable, strict=False)))
    lines = {name: distribution([*chain(*runs)]) for name, runs in found.items() if runs}
    plot = Plot("pick-up latency beside peers, idle", "milliseconds", "percent of submits", lines)
    title = (
        f"pick-up latency beside peers, idle, {sizes.submits} submits 20 ms apart, ours over HTTP with {SLOTS} slots"
    )
    return Table(title, rows, [*described(HOW), *not_run], plot)


def row(name: str, point: int) -> str:
    return f"{name}, p{point}, ms"


def ratio(point: int) -> str:
    return f"{OURS} / the fastest that is durable, p{point}"

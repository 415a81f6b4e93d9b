"""Peers: the drain of no-op tasks by others and by us, by turns, on the same server with the same settings.

Each at the setting that drained best by its own records; Celery with late acknowledgement, the only one that delivers
at least once. The clock runs from the first body until the product's own store shows no open job, seen every 50 ms;
so does ours. A product that cannot be installed or run here is NOT_RUN.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

from bench.installed import SCRIPTS, NotRun, Redis, node_packages, python_environment
from bench.products import OnPostgres, OnRedis, Ours, Product, finished
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import NOT_RUN, Table, ratios

Figure = TypeVar("Figure")

OURS, PGQUEUER, CELERY, GRAPHILE = "pgtally", "PgQueuer", "Celery on Redis", "graphile-worker"
VERSIONS: Final = {
    PGQUEUER: ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    CELERY: ("celery[redis]==5.7.0",),
    GRAPHILE: ("graphile-worker@0.17.3",),
}
HOW: Final = {
    PGQUEUER: "batches of 1,000",
    CELERY: "prefork -c 2, late acknowledgement; Redis keeps nothing on disk",
    GRAPHILE: "concurrency 24, local queue of 500, completions batched: may repeat work after a crash",
}


def measure(stage: Stage, sizes: Sizes) -> Table:
    def rate(name: str, product: Product, mark: Path) -> float:
        return _rate(product, sizes.slow_tasks if name == CELERY else sizes.tasks, mark)

    rates, not_run = by_turns(stage, sizes, rate)
    rows = {f"{name}, tasks/s": values for name, values in rates.items()}
    rows |= {against(name): ratios(rates[OURS], rates[name]) for name in VERSIONS}
    title = f"drain {sizes.tasks:,} no-op tasks (Celery {sizes.slow_tasks:,}), ours with {sizes.best_slots} slots"
    return Table(title, rows, [*described(HOW), *not_run])


def against(name: str) -> str:
    return f"{OURS} / {name}"


def described(how: dict[str, str]) -> list[str]:
    """Return a note on each peer: its version, and how it is run."""
    return [f"{name}: {', '.join(VERSIONS[name])}; {how[name]}" for name in VERSIONS]


def by_turns(
    stage: Stage, sizes: Sizes, figure: Callable[[str, Product, Path], Figure]
) -> tuple[dict[str, list[Figure]], list[str]]:
    """Return the figures of each product, taken by turns, and why some are NOT_RUN.

    What is to be installed is installed before the first turn, and kept where a folder is named. `figure` is also given
    a file for marks.
    """
    found: dict[str, list[Figure]] = {OURS: [], **{name: [] for name in VERSIONS}}
    notes = []
    with ExitStack() as until:
        scratch = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="tally-peers-")))
        products: dict[str, Product] = {OURS: Ours(stage, sizes.best_slots)}
        for name, make in _makers(stage, stage.peers_in or scratch, scratch, until).items():
            try:
                products[name] = make()
            except NotRun as error:
                notes.append(f"{NOT_RUN}: {name}: {error}")
        for _ in range(sizes.repeat):
            for name in list(products):
                try:
                    found[name].append(figure(name, products[name], scratch / "mark"))
                except NotRun as error:
                    notes.append(f"{NOT_RUN}: {name}: {error}")
                    del products[name]
    return found, notes


def _makers(stage: Stage, folder: Path, scratch: Path, until: ExitStack) -> dict[str, Callable[[], Product]]:
    """Return how each product is installed and made ready; doing so may raise `NotRun`."""

    def pgqueuer() -> Product:
        python = python_environment(folder / "pgqueuer", VERSIONS[PGQUEUER])
        return OnPostgres(stage, "pgqueuer", [python, SCRIPTS / "pgqueuer_peer.py"], 1_000, 10)

    def celery() -> Product:
        redis = until.enter_context(Redis(scratch).running())
        return OnRedis(redis, python_environment(folder / "celery", VERSIONS[CELERY]))

    def graphile() -> Product:
        modules = node_packages(folder / "graphile", VERSIONS[GRAPHILE])
        return OnPostgres(stage, "graphile", ["node", SCRIPTS / "graphile_peer.cjs"], 500, 0, NODE_PATH=str(modules))

    return {PGQUEUER: pgqueuer, CELERY: celery, GRAPHILE: graphile}


def _rate(product: Product, tasks: int, mark: Path) -> float:
    """Fill it, work it, and return its rate. Raises `NotRun` where it does not come to an end."""
    product.fill(tasks)
    mark.write_text("")
    with product.work(mark):
        recorded = finished(product, mark)
    return tasks * 1e9 / (recorded - min(map(int, mark.read_text().split())))

"""Crowd: the pick-up with many idle dispatchers against one, by turns, and how many claims a submit costs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from bench.pickup import SLOTS, WARM_UP, posted
from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table, percentile, ratios

RATIO: Final = "many / one"
SHARE: Final = 3
"""Of the submits of `pickup`, one in so many."""


def measure(stage: Stage, sizes: Sizes) -> Table:
    submits = max(1, sizes.submits // SHARE)
    alone, many, claims = [], [], []
    with stage.web() as (_, address):
        for _ in range(sizes.repeat):
            stage.empty()
            with _dispatchers(stage, 1):
                alone.append(percentile(posted(stage, address, submits), 50))
            with _dispatchers(stage, sizes.crowd):
                before = _claims(stage)
                many.append(percentile(posted(stage, address, submits), 50))
                claims.append((_claims(stage) - before) / (submits + WARM_UP))
    return Table(
        f"pick-up with {sizes.crowd} idle dispatchers, {submits} submits 20 ms apart",
        {
            "p50 with one, ms": alone,
            f"p50 with {sizes.crowd}, ms": many,
            RATIO: ratios(many, alone),
            "claims and sweeps for each submit": claims,
        },
    )


@contextmanager
def _dispatchers(stage: Stage, count: int) -> Iterator[None]:
    with ExitStack() as running:
        for _ in range(count):
            running.enter_context(stage.dispatcher(SLOTS))
        yield


def _claims(stage: Stage) -> int:
    """Return how many claims there were in this database; the server counts calls of functions."""
    (count,) = stage.run("claims")
    return int(count)

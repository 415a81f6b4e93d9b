"""Submit: POST /tasks over keep-alive connections, no dispatcher running.

Beside it, by turns: the same web process with an admission that does nothing, which is what can be reached over HTTP,
and with one that gives every request a row, a NOTIFY and a COMMIT of its own. Then once more with commits of 5 ms.
"""

from contextlib import ExitStack
from typing import Final

from bench.load import rate, tool
from bench.sizes import Sizes
from bench.stage import Address, Stage
from bench.table import Table, ratios

CONNECTIONS: Final = (1, 16, 64)
MOST: Final = CONNECTIONS[-1]
OURS, NOTHING, ALONE = "submits", "doing nothing", "one NOTIFY a request"
SLOW_RATIO: Final = f"submits / {ALONE}, commits of 5 ms, {MOST} connections"


def measure(stage: Stage, sizes: Sizes) -> Table:
    rows: dict[str, list[float]] = {}
    with ExitStack() as running:
        addresses = {
            OURS: running.enter_context(stage.web())[1],
            NOTHING: running.enter_context(stage.web("bench.stand_ins", "nothing"))[1],
            ALONE: running.enter_context(stage.web("bench.stand_ins", "alone"))[1],
        }
        for connections in CONNECTIONS:
            names = (OURS, NOTHING, ALONE) if connections == MOST else (OURS, NOTHING)
            asked = {name: addresses[name] for name in names}
            for name, rates in _by_turns(stage, asked, connections, sizes).items():
                rows[row(name, connections)] = rates
            rows[against(NOTHING, connections)] = ratios(rows[row(OURS, connections)], rows[row(NOTHING, connections)])
        with stage.commits_of_5_ms():
            slow = _by_turns(stage, {name: addresses[name] for name in (OURS, ALONE)}, MOST, sizes)
    for name, rates in slow.items():
        rows[f"{name}, commits of 5 ms, {MOST} connections, /s"] = rates
    rows[SLOW_RATIO] = ratios(slow[OURS], slow[ALONE])
    return Table("submit over HTTP, one web process", rows, [f"load: {tool()}; it shares the machine"])


def row(name: str, connections: int) -> str:
    return f"{name}, {connections} connections, /s"


def against(other: str, connections: int) -> str:
    return f"submits / {other}, {connections} connections"


def _by_turns(stage: Stage, addresses: dict[str, Address], connections: int, sizes: Sizes) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in addresses}
    for _ in range(sizes.repeat):
        for name, address in addresses.items():
            stage.empty()
            rates[name].append(rate(address, connections, sizes.seconds))
    return rates

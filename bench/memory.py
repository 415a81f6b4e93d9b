"""Memory: what both programs keep resident while a great many tasks go through them, and then a great many failures.

The tasks come by bulk submit. A failure is, for the dispatcher, a body that raises; for the web, a body it refuses. The
table is emptied between rounds.
"""

import json
import os
from pathlib import Path
from typing import Final

from bench.bulk import EACH, submitted
from bench.load import BROKEN, post
from bench.sizes import Sizes
from bench.stage import Address, Stage
from bench.table import Table

ROUNDS: Final = 10
PROGRAMS: Final = ("web", "dispatcher")


def measure(stage: Stage, sizes: Sizes) -> Table:
    stage.empty()
    resident: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with stage.web() as (web, address), stage.dispatcher(sizes.best_slots) as dispatcher:

        def note() -> None:
            for name, pid in (("web", web), ("dispatcher", dispatcher)):
                resident[name].append(_resident_mib(pid))

        for _ in range(ROUNDS):
            _through(stage, address, sizes.memory_tasks // ROUNDS, "noop")
            note()
        _through(stage, address, sizes.memory_failures, "fail")
        _refuse(address, sizes.memory_failures)
        note()
    rows: dict[str, list[float]] = {}
    for name, values in resident.items():
        rows[f"{name}, after the first tenth, MiB"] = values[:1]
        rows[f"{name}, after all, MiB"] = values[-2:-1]
        rows[f"{name}, after the failures too, MiB"] = values[-1:]
        rows[growth(name)] = [max(values[-2:]) - values[0]]
    return Table(f"resident memory over {sizes.memory_tasks:,} tasks and {sizes.memory_failures:,} failures", rows)


def growth(name: str) -> str:
    return f"{name}, grown by, MiB"


def _through(stage: Stage, address: Address, tasks: int, kind: str) -> None:
    submitted(address, max(1, tasks // EACH), json.dumps([{"kind": kind, "input": {}}] * EACH))
    stage.drained()
    stage.empty()


def _refuse(address: Address, requests: int) -> None:
    refused = 0
    while refused < requests:
        _, some, _ = post(address, 16, min(5.0, requests / 1000), BROKEN)
        refused += some


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

"""Idle: the CPU that both programs take with nothing to do."""

import os
import time
from pathlib import Path
from typing import Final

from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table

TOGETHER: Final = "together, % of a core"


def measure(stage: Stage, sizes: Sizes) -> Table:
    stage.empty()
    rows: dict[str, list[float]] = {"web, % of a core": [], "dispatcher, % of a core": [], TOGETHER: []}
    with stage.web() as (web, _), stage.dispatcher(sizes.slots) as dispatcher:
        time.sleep(min(1.0, sizes.idle_seconds))
        for _ in range(sizes.repeat):
            before = [_cpu_seconds(pid) for pid in (web, dispatcher)]
            time.sleep(sizes.idle_seconds)
            shares = [
                100 * (_cpu_seconds(pid) - early) / sizes.idle_seconds
                for pid, early in zip((web, dispatcher), before, strict=True)
            ]
            for values, share in zip(rows.values(), [*shares, sum(shares)], strict=True):
                values.append(share)
    return Table(f"idle for {sizes.idle_seconds:g} s", rows)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

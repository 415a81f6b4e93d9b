"""Footprint: what both programs take while idle, and whether a dispatcher's memory stays flat under many tasks."""

import os
import time
from pathlib import Path
from statistics import median

from bench.report import Table
from bench.stage import Stage

ROUNDS = 10


def idle(stage: Stage, *, seconds: float) -> Table:
    """Return the share of one core that each program uses with nothing to do, in percent."""
    stage.empty()
    with stage.web() as (web, _), stage.dispatcher(8) as dispatcher:
        time.sleep(1)
        before = [_cpu_seconds(process.pid) for process in (web, dispatcher)]
        time.sleep(seconds)
        after = [_cpu_seconds(process.pid) for process in (web, dispatcher)]
    web_share, dispatcher_share = (100 * (late - early) / seconds for early, late in zip(before, after, strict=True))
    figures = {"web, % of a core": web_share, "dispatcher, % of a core": dispatcher_share}
    return Table(f"idle for {seconds:g} s", {}, {**figures, "together, % of a core": web_share + dispatcher_share})


def memory(stage: Stage, *, tasks: int) -> Table:
    """Return the dispatcher's resident memory in MiB after the first round of tasks and after the last."""
    stage.empty()
    resident = []
    with stage.dispatcher(32) as dispatcher:
        for _ in range(ROUNDS):
            stage.run("fill", tasks=tasks // ROUNDS)
            stage.drained()
            stage.empty()
            resident.append(_resident_mib(dispatcher.pid))
    return Table(
        f"dispatcher's resident memory over {tasks} tasks",
        {"MiB after each round": resident},
        {"first, MiB": resident[0], "last, MiB": resident[-1], "median, MiB": median(resident)},
    )


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

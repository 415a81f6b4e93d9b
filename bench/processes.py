"""Processes: what a slot that is a process costs beside a thread, and what it is for: bodies that compute.

No-op tasks through one dispatcher whose bodies run in threads, then in processes. And tasks that keep a core busy, in
as many slots as twice the cores of a small machine: in threads, which share one interpreter's lock; in processes; and
in one process alone.
"""

from typing import Final

from bench.sizes import Sizes
from bench.stage import Stage
from bench.table import Table, ratios

KINDS: Final = "bench.process_kinds"
SLOTS: Final = 4
"""For bodies that compute."""
COST: Final = "no-op: cost in a process / in a thread"
BESIDE_THREADS: Final = f"computing: {SLOTS} processes / {SLOTS} threads"
BESIDE_ONE: Final = f"computing: {SLOTS} processes / 1 process"


def measure(stage: Stage, sizes: Sizes) -> Table:
    threads, processes = [], []
    many_threads, many, one = [], [], []
    computing = sizes.busy_tasks
    for _ in range(sizes.repeat):
        threads.append(_rate(stage, "noop.thread", sizes.tasks, sizes.slots))
        processes.append(_rate(stage, "noop.process", sizes.tasks, sizes.slots))
        many_threads.append(_rate(stage, "compute.thread", computing, SLOTS))
        many.append(_rate(stage, "compute.process", computing, SLOTS))
        one.append(_rate(stage, "compute.process", computing, 1))
    return Table(
        f"processes: {sizes.tasks:,} no-op tasks in {sizes.slots} slots; {computing:,} tasks that compute",
        {
            "no-op in threads, tasks/s": threads,
            "no-op in processes, tasks/s": processes,
            COST: ratios(threads, processes),
            f"computing in {SLOTS} threads, tasks/s": many_threads,
            f"computing in {SLOTS} processes, tasks/s": many,
            "computing in 1 process, tasks/s": one,
            BESIDE_THREADS: ratios(many, many_threads),
            BESIDE_ONE: ratios(many, one),
        },
        ["the processes are there before the clock runs; they are replaced after TALLY_PROCESS_TASKS"],
    )


def _rate(stage: Stage, kind: str, tasks: int, slots: int) -> float:
    """Return the rate at which a dispatcher drains so many tasks, once it has drained a few."""
    stage.empty()
    with stage.dispatcher(slots, KINDS):
        stage.fill(2 * slots, kind=kind)
        stage.drained()
        stage.query("pause_queue", queue="default")
        stage.empty()
        stage.fill(tasks, kind=kind)
        stage.query("resume_queue", queue="default")
        stage.drained()
    succeeded, seconds = stage.run("succeeded")
    assert succeeded == tasks
    return float(tasks / seconds)

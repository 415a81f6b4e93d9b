"""What is to be reached: the figure of a subject that decides, and by how much."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from bench import (
    backlog,
    bound,
    bulk,
    drain,
    idle,
    memory,
    mixed,
    peer_pickup,
    peers,
    pickup,
    processes,
    snapshot,
    submit,
    text,
    two,
)
from bench.table import NOT_RUN

TIMES: Final = " \N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True)
class Target:
    """The median of a row of a subject's table is to be at least, or at most, `limit`; `stretch` is wished for."""

    work: str
    subject: str
    row: str
    sense: Literal["≥", "≤"]
    limit: float | None
    unit: str = ""
    stretch: float | None = None

    @property
    def wanted(self) -> str:
        """In words."""
        limit = None if self.limit is None else f"{self.sense} {self.limit:,g}{self.unit}"
        stretch = None if self.stretch is None else f"stretch {self.sense} {self.stretch:,g}{self.unit}"
        return ", ".join(each for each in (limit, stretch) if each)

    def judged(self, values: Sequence[float]) -> str:
        if not values:
            return NOT_RUN
        found = median(values)
        said = [("" if self.limit is None else "yes" if self._reaches(found, self.limit) else "no")]
        if self.stretch is not None:
            said.append(f"stretch {'yes' if self._reaches(found, self.stretch) else 'no'}")
        return ", ".join(filter(None, said))

    def _reaches(self, found: float, limit: float) -> bool:
        return found >= limit if self.sense == "≥" else found <= limit


def _submit(connections: int, limit: float) -> Target:
    work = f"submit over HTTP, {connections} connections, against the same app doing nothing"
    return Target(work, "submit", submit.against(submit.NOTHING, connections), "≥", limit, TIMES)


def _flat(step: str) -> Target:
    work = f"{step} under another session's snapshot, last tenth of the tasks against the first"
    return Target(work, "snapshot", snapshot.ratio(step), "≤", 1.3, TIMES)


TARGETS: Final = (
    Target("drain no-op tasks, against the bare claim+finish loop", "drain", drain.RATIO, "≥", 0.8, TIMES),
    Target("drain at our best slots, against PgQueuer", "peers", peers.against(peers.PGQUEUER), "≥", 1.3, TIMES),
    Target("the same against Celery on Redis", "peers", peers.against(peers.CELERY), "≥", 10, TIMES),
    Target(
        "the same against graphile-worker with its local queue",
        "peers",
        peers.against(peers.GRAPHILE),
        "≥",
        None,
        TIMES,
        1,
    ),
    Target("text.stats on 1 kB, results stored, against no-op", "text", text.RATIO, "≥", 0.6, TIMES),
    Target("submit over HTTP, 1 connection", "submit", submit.row(submit.OURS, 1), "≥", 1_500, "/s", 2_000),
    _submit(16, 0.6),
    _submit(64, 0.6),
    Target("the same with commits of 5 ms, against one NOTIFY a request", "submit", submit.SLOW_RATIO, "≥", 10, TIMES),
    Target("bulk submit over HTTP, one connection", "bulk", bulk.RATE, "≥", 25_000, "/s"),
    Target("pick-up, idle, POST to body start, p50", "pickup", pickup.row(pickup.POST, 50), "≤", 1.4, " ms", 1.0),
    Target("the same, p99", "pickup", pickup.row(pickup.POST, 99), "≤", 4, " ms", 2.5),
    Target(
        "pick-up p50 beside the fastest durable peer in the same run",
        "peer_pickup",
        peer_pickup.ratio(50),
        "≤",
        1,
        TIMES,
    ),
    Target("COMMIT to body start, against a bare NOTIFY, p50", "pickup", pickup.RATIO, "≤", 6, TIMES),
    Target("producers over HTTP and a dispatcher at once: produced", "mixed", mixed.PRODUCED, "≥", 2_500, "/s", 3_500),
    Target("the same: consumed", "mixed", mixed.CONSUMED, "≥", 2_500, "/s", 3_500),
    Target("the same: consumed against produced", "mixed", mixed.RATIO, "≥", 0.95, TIMES),
    Target("claim cost over the backlog, dearest against cheapest", "backlog", backlog.RATIO, "≤", 1.3, TIMES),
    *(_flat(step) for step in (*snapshot.STEPS, snapshot.DISPATCHER)),
    Target("submit, the smaller max_open nine tenths full, against empty", "bound", bound.SMALLER, "≤", 1.3, TIMES),
    Target("the same, the larger", "bound", bound.LARGER, "≤", 1.3, TIMES),
    Target("two dispatchers on one queue, against one", "two", two.RATIO, "≥", 0.9, TIMES),
    Target("drain no-op tasks in processes, cost against threads", "processes", processes.COST, "≤", 3, TIMES),
    Target(
        "four bodies that compute, processes against threads", "processes", processes.BESIDE_THREADS, "≥", 1.5, TIMES
    ),
    Target("the same against one process", "processes", processes.BESIDE_ONE, "≥", 1.5, TIMES),
    *(
        Target(f"resident memory of the {program}, grown by", "memory", memory.growth(program), "≤", 5, " MiB")
        for program in memory.PROGRAMS
    ),
    Target("idle CPU, both programs", "idle", idle.TOGETHER, "≤", 1, " % of a core"),
)

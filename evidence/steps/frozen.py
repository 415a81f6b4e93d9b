"""A database that stops answering and closes nothing, for 30 seconds: its server frozen, or the network before it."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

from evidence.client import Client
from evidence.deadline import AT_ONCE_SECONDS, DEADLINE_SECONDS, in_time
from evidence.programs import Program
from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within
from evidence.steps.outages import back, one_done_one_running, outlived

FROZEN_SECONDS: Final = 30
CLIENTS: Final = 4
PAUSE_SECONDS: Final = 0.25
MORE_THREADS: Final = 3
"""psycopg's pool has workers of its own, which come with the first session."""


@contextmanager
def _load(api: Client, known: int) -> Iterator[None]:
    """While inside, clients submit, and read this task, by turns."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(PAUSE_SECONDS):
            api.submit("echo", label="load")
            api.get(f"/tasks/{known}", label="load")

    clients = [threading.Thread(target=run) for _ in range(CLIENTS)]
    for each in clients:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in clients:
            each.join()


def _threads(*programs: Program) -> dict[str, int]:
    return {each.name: len(list(Path(f"/proc/{each.pid}/task").iterdir())) for each in programs}


def _frozen(
    stage: Stage, freeze: Callable[[], None], thaw: Callable[[], None], env: Mapping[str, str] | None = None
) -> None:
    web, dispatcher = stage.web(env=env), stage.dispatcher(env=env)
    api, admin = stage.client(web), stage.client(web.admin)
    old, running, let_end = one_done_one_running(stage, api)
    with _load(api, old):
        stage.wait_until(lambda: len(stage.effects) > 20, "the service is under load")
        before = _threads(web, dispatcher)
        stage.event("threads before", **before)
        freeze()
        let_end()
        end = monotonic() + FROZEN_SECONDS
        while monotonic() < end:
            admin.get("/readyz", label="readiness")
            stage.event("threads", **_threads(web, dispatcher))
            stage.wait(1)
        admin.get("/healthz", label="health")
        thaw()
        back(stage, web)
    # Whoever came with the outage goes with it.
    stage.wait_until(
        lambda: all(now <= before[name] for name, now in _threads(web, dispatcher).items()), "no thread is left over"
    )
    stage.event("threads after", **_threads(web, dispatcher))
    api.get(f"/tasks/{old}", label="old id")
    api.follow(running)
    # Before a proxy that they need is gone.
    dispatcher.stop()
    web.stop()


@step(
    "server-frozen", "the whole server frozen for 30 s: refused in time, no thread piles up, recovery", alongside=True
)
def server_frozen(stage: Stage) -> None:
    _frozen(stage, stage.cluster.freeze, stage.cluster.thaw)


@step("network-frozen", "the same with a proxy that forwards nothing for 30 s and closes nothing", alongside=True)
def network_frozen(stage: Stage) -> None:
    with stage.proxy() as proxy:
        _frozen(stage, proxy.freeze, proxy.thaw, {"DATABASE_URL": proxy.url})


def _claims(record: Record, what: str) -> Iterator[Claim]:
    frozen, thawed = record.event(f"{what} frozen")["at"], record.event(f"{what} thawed")["at"]
    yield within(f"it was frozen for {FROZEN_SECONDS} s", thawed - frozen, FROZEN_SECONDS + 5, FROZEN_SECONDS)
    load = record.answers("load")
    meanwhile = [each for each in load if each.began > frozen and each.ended < thawed]
    counted = Counter(str(each.status) for each in meanwhile)
    yield Claim("every submit and every read meanwhile is 503", dict(counted), counted.keys() == {"503"})
    yield Claim("there were many", len(meanwhile), len(meanwhile) > CLIENTS * FROZEN_SECONDS)
    yield in_time(load)
    later = [each.seconds for each in meanwhile if each.began > frozen + 2 * DEADLINE_SECONDS]
    yield within(f"once it is known they are refused at once, in {AT_ONCE_SECONDS} s", median(later), AT_ONCE_SECONDS)
    ready = [each.status for each in record.answers("readiness")]
    yield equal("readiness is 503 each time", sorted(set(ready), key=str), [503])
    yield equal("health stays 200", record.answer("health").status, 200)

    before, after = record.event("threads before"), record.event("threads after")
    for name in ("web", "dispatcher"):
        seen = [each[name] for each in record.events("threads")]
        yield Claim(
            f"{name}: at most {MORE_THREADS} threads more than before, and none afterwards",
            {"before": before[name], "most": max(seen), "after": after[name]},
            max(seen) <= before[name] + MORE_THREADS and after[name] <= before[name],
        )
    yield from outlived(record, thawed)


@server_frozen.must
def _(record: Record) -> Iterator[Claim]:
    yield from _claims(record, "server")


@network_frozen.must
def _(record: Record) -> Iterator[Claim]:
    yield from _claims(record, "network")

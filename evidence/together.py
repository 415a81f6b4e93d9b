"""Requests that are under way together: at the same moment, or in one batch of admission."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from evidence.programs import Program
from evidence.record import Exchange
from evidence.stage import Stage

Call = Callable[[], Exchange]

_WAITING: Final = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


def at_once(*calls: Call) -> list[Exchange]:
    """Make these calls together, each in a thread of its own, and return their answers in this order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def in_one_batch(stage: Stage, web: Program, *calls: Call) -> list[Exchange]:
    """Let these submits gather behind one that waits for the queue's lock; then they are admitted together."""
    with stage.database.session("evidence holder") as holder, ThreadPoolExecutor(len(calls) + 1) as pool:
        holder.sql("select pg_advisory_lock(tally.queue_lock_key('default'))")
        before = pool.submit(lambda: stage.client(web).submit("echo", label="before the batch"))
        stage.wait_until(lambda: stage.database.value(_WAITING) == 1, "an admission waits for the queue")
        gathering = [pool.submit(call) for call in calls]
        stage.wait_until(lambda: _taken(web) == len(calls) + 1, "the web has read every request")
        for _ in range(3):
            # Asked after them and answered, by threads that were free: they have gone as far as they can.
            stage.client(web).get("/tasks/4711", label="asked after them")
        stage.event("gathered", submits=len(calls))
        holder.sql("select pg_advisory_unlock_all()")
        before.result()
        return [each.result() for each in gathering]


def _taken(web: Program) -> int:
    """Return how many connections a web has from which there is nothing left to read."""
    address = f":{web.address[1]:04X}"
    lines: list[list[Any]] = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(each[1].endswith(address) and each[3] == "01" and each[4].endswith(":00000000") for each in lines)

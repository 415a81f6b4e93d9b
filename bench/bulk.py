"""Bulk: POST /tasks/batch with a thousand tasks, one request after the other on one connection, no dispatcher running.

Beside it, by turns: the same statement with the same thousand tasks, called as often with nothing around it.
"""

import http.client
import json
import time
from typing import Final

from bench.sizes import Sizes
from bench.stage import Address, Stage
from bench.table import Table, ratios

EACH: Final = 1_000
TASKS: Final = json.dumps([{"kind": "noop", "input": {}}] * EACH)
RATE: Final = "over HTTP, tasks/s"


def measure(stage: Stage, sizes: Sizes) -> Table:
    rates, bare = [], []
    with stage.web() as (_, address):
        for _ in range(sizes.repeat):
            stage.empty()
            rates.append(EACH * sizes.bulk_requests / submitted(address, sizes.bulk_requests))
            stage.empty()
            bare.append(EACH * sizes.bulk_requests / _bare(stage, sizes.bulk_requests))
    return Table(
        f"bulk submit, {EACH:,} tasks a request, one connection",
        {RATE: rates, "bare submit_batch, tasks/s": bare, "over HTTP / bare": ratios(rates, bare)},
    )


def submitted(address: Address, requests: int, tasks: str = TASKS) -> float:
    """Submit so often; returns the seconds that took."""
    connection = http.client.HTTPConnection(*address)
    began = time.perf_counter()
    for _ in range(requests):
        connection.request("POST", "/tasks/batch", f'{{"tasks": {tasks}}}', {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        assert response.status == 202, answer[:500]
    took = time.perf_counter() - began
    connection.close()
    assert len(json.loads(answer)["ids"]) == EACH
    return took


def _bare(stage: Stage, requests: int) -> float:
    began = time.perf_counter()
    for _ in range(requests):
        rows = stage.query("submit_batch", tasks=TASKS, queue="default", key_wait_ms=100, notify=True)
        assert [row[0] for row in rows] == ["admitted"] * EACH
    return time.perf_counter() - began

"""Submit: POST /tasks over keep-alive connections, no dispatcher running."""

import http.client
import json
import time
from threading import Thread

from bench.report import Table
from bench.stage import Stage

BODY = json.dumps({"kind": "noop", "input": {}})


def measure(stage: Stage, *, seconds: float, repeat: int) -> Table:
    """Return submits a second at 1, 16 and 64 connections; the client shares the machine, in one process."""
    rates: dict[str, list[float]] = {}
    with stage.web() as (_, address):
        for connections in (1, 16, 64):
            for _ in range(repeat):
                stage.empty()
                rate = _rate(address, connections, seconds)
                rates.setdefault(f"{connections} connections, submits/s", []).append(rate)
    return Table("submit over HTTP, one web process", rates, {})


def _rate(address: tuple[str, int], connections: int, seconds: float) -> float:
    until = time.monotonic() + seconds
    counts = [0] * connections
    threads = [Thread(target=_submit, args=(address, until, counts, each)) for each in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(counts) > 0, "a connection got no answer at all, or another than 202"
    return sum(counts) / seconds


def _submit(address: tuple[str, int], until: float, counts: list[int], which: int) -> None:
    connection = http.client.HTTPConnection(*address)
    while time.monotonic() < until:
        connection.request("POST", "/tasks", BODY, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        if response.status != 202:
            counts[which] = 0
            break
        counts[which] += 1
    connection.close()

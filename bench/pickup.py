"""Pick-up: from just before a POST to the beginning of the task's body, on an idle service."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

from bench.report import Table, percentile
from bench.stage import Stage

APART_SECONDS = 0.02
WARM_UP = 20
SLOTS = 8


def measure(stage: Stage, *, submits: int) -> Table:
    """Return milliseconds, of submits 20 ms apart over one keep-alive connection, with one dispatcher."""
    with _dispatchers(stage, 1):
        waited = _waited(stage, submits)
    return Table(
        f"pick-up latency, {submits} submits 20 ms apart",
        {},
        {f"p{point}, ms": percentile(waited, point) for point in (50, 95, 99)},
    )


def crowd(stage: Stage, *, submits: int, dispatchers: int, repeat: int) -> Table:
    """Return the same p50 with one dispatcher and with many, by turns, and how many claims a submit costs."""
    alone, many, ratios, claims = [], [], [], []
    for _ in range(repeat):
        with _dispatchers(stage, 1):
            alone.append(percentile(_waited(stage, submits), 50))
        with _dispatchers(stage, dispatchers):
            before = _claims(stage)
            many.append(percentile(_waited(stage, submits), 50))
            claims.append((_claims(stage) - before) / (submits + WARM_UP))
        ratios.append(many[-1] / alone[-1])
    return Table(
        f"pick-up with {dispatchers} idle dispatchers, {submits} submits 20 ms apart",
        {"p50 with one, ms": alone, f"p50 with {dispatchers}, ms": many},
        {"ratio of the two": median(ratios), "claims and sweeps for each submit": median(claims)},
    )


@contextmanager
def _dispatchers(stage: Stage, count: int) -> Iterator[None]:
    with ExitStack() as running:
        for _ in range(count):
            running.enter_context(stage.dispatcher(SLOTS))
        yield


def _claims(stage: Stage) -> int:
    """Return how many claims there were in this database; the server counts calls of functions."""
    (count,) = stage.run("claims")
    return int(count)


def _waited(stage: Stage, submits: int) -> list[float]:
    stage.empty()
    stamps = stage.folder / "stamps"
    stamps.write_text("")
    stamps.chmod(0o666)
    before: dict[int, int] = {}
    body = json.dumps({"kind": "stamp", "input": {"file": str(stamps)}})
    with stage.web() as (_, (host, port)):
        # As curl and most clients do, and http.client does not: head and body of a small request in one packet.
        head = f"POST /tasks HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        with socket.create_connection((host, port)) as connection:
            for _ in range(WARM_UP + submits):
                began = time.monotonic_ns()
                connection.sendall(request)
                response = http.client.HTTPResponse(connection)
                response.begin()
                answer = json.loads(response.read())
                assert response.status == 202, answer
                before[answer["id"]] = began
                time.sleep(APART_SECONDS)
        stage.drained()
    lines = [line.split() for line in stamps.read_text().splitlines()]
    waited = {int(task): (int(moment) - before[int(task)]) / 1e6 for task, moment in lines}
    assert waited.keys() == before.keys()
    return [waited[task] for task in before][WARM_UP:]

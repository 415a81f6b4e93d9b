"""Pick-up: from just before a POST to the beginning of the task's body, on an idle service.

Also from just before the COMMIT of a submit made as admission makes it; and, which is what the server itself takes,
from just before a bare NOTIFY to its receipt in another process. By turns.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from socket import create_connection
from typing import Final

import psycopg

from bench.bare import submit
from bench.sizes import Sizes
from bench.stage import Address, Stage
from bench.table import Plot, Table, distribution, percentile, ratios

APART_SECONDS: Final = 0.02
WARM_UP: Final = 20
POINTS: Final = (50, 95, 99)
SLOTS: Final = 8
POST, COMMIT, NOTIFY = "POST to body start", "COMMIT to body start", "bare NOTIFY to receipt"
RATIO: Final = f"{COMMIT} / {NOTIFY}, p50"


def measure(stage: Stage, sizes: Sizes) -> Table:
    stage.empty()
    fewer = max(1, sizes.submits // 2)
    found: dict[str, list[list[float]]] = {POST: [], COMMIT: [], NOTIFY: []}
    with stage.web() as (_, address), stage.dispatcher(SLOTS):
        for _ in range(sizes.repeat):
            found[POST].append(posted(stage, address, sizes.submits))
            found[COMMIT].append(_committed(stage, fewer))
            found[NOTIFY].append(_notified(stage, fewer))
    rows = {
        row(name, point): [percentile(each, point) for each in runs] for name, runs in found.items() for point in POINTS
    }
    rows[RATIO] = ratios(rows[row(COMMIT, 50)], rows[row(NOTIFY, 50)])
    lines = {name: distribution([*chain(*runs)]) for name, runs in found.items()}
    plot = Plot("pick-up latency, idle", "milliseconds", "percent of submits", lines)
    return Table(f"pick-up latency, idle, {sizes.submits} submits 20 ms apart, thread slot", rows, [], plot)


def row(name: str, point: int) -> str:
    return f"{name}, p{point}, ms"


def posted(stage: Stage, address: Address, submits: int) -> list[float]:
    """Return milliseconds from POST to body start, over one keep-alive connection."""
    with create_connection(address) as connection:

        def post(body: str) -> tuple[int, int]:
            # As curl and most clients do, and http.client does not: head and body of a small request in one packet.
            head = f"POST /tasks HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
            began = time.monotonic_ns()
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            response = http.client.HTTPResponse(connection)
            response.begin()
            answer = json.loads(response.read())
            assert response.status == 202, answer
            return answer["id"], began

        return _waited(stage, submits, lambda file: post(json.dumps({"kind": "stamp", "input": {"file": file}})))


def _committed(stage: Stage, submits: int) -> list[float]:
    with stage.connect() as connection:

        def commit(file: str) -> tuple[int, int]:
            connection.execute(b"begin")
            (task,) = submit(connection, input_text=json.dumps({"file": file}))
            began = time.monotonic_ns()
            connection.execute(b"commit")
            return task, began

        return _waited(stage, submits, commit)


def _waited(stage: Stage, submits: int, do: Callable[[str], tuple[int, int]]) -> list[float]:
    """Submit 20 ms apart by `do`, which returns a task and a moment; return milliseconds from there to its body."""
    stamps = stage.folder / "stamps"
    stamps.write_text("")
    before: dict[int, int] = {}
    for _ in range(WARM_UP + submits):
        task, began = do(str(stamps))
        before[task] = began
        time.sleep(APART_SECONDS)
    stage.drained()
    lines = [line.split() for line in stamps.read_text().splitlines()]
    waited = {int(task): (int(moment) - before[int(task)]) / 1e6 for task, moment in lines}
    assert waited.keys() == before.keys()
    return [waited[task] for task in before][WARM_UP:]


def _notified(stage: Stage, notifications: int) -> list[float]:
    with _listener(stage.url) as received, stage.connect() as connection:
        waited = []
        for _ in range(WARM_UP + notifications):
            began = time.monotonic_ns()
            connection.execute(b"notify bench")
            waited.append((received.recv() - began) / 1e6)
            time.sleep(APART_SECONDS / 4)
    return waited[WARM_UP:]


@contextmanager
def _listener(url: str) -> Iterator[Pipe]:
    """Run a process that tells the moment of each notification it receives."""
    ours, its = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_listen, args=(url, its), daemon=True)
    process.start()
    assert ours.recv() == "listening"
    try:
        yield ours
    finally:
        process.terminate()
        process.join()


def _listen(url: str, tell: Pipe) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("listen bench")
        tell.send("listening")
        for _ in connection.notifies():
            tell.send(time.monotonic_ns())

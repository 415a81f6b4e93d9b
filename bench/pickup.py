"""Pick-up: from just before a POST to the beginning of the task's body, on an idle service."""

import http.client
import json
import socket
import time

from bench.report import Table, percentile
from bench.stage import Stage

APART_SECONDS = 0.02
WARM_UP = 20


def measure(stage: Stage, *, submits: int) -> Table:
    """Return milliseconds, of submits 20 ms apart over one keep-alive connection."""
    stage.empty()
    stamps = stage.folder / "stamps"
    stamps.touch()
    stamps.chmod(0o666)
    before: dict[int, int] = {}
    body = json.dumps({"kind": "stamp", "input": {"file": str(stamps)}})
    with stage.web() as (_, (host, port)), stage.dispatcher(8):
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
    milliseconds = [waited[task] for task in before][WARM_UP:]
    return Table(
        f"pick-up latency, {submits} submits 20 ms apart",
        {},
        {f"p{point}, ms": percentile(milliseconds, point) for point in (50, 95, 99)},
    )

"""Load over HTTP: the same POST over and over, on many keep-alive connections, by `wrk` or, without it, by threads."""

import http.client
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from math import ceil
from pathlib import Path
from threading import Thread
from typing import Final

from bench.stage import Address

NOOP: Final = json.dumps({"kind": "noop", "input": {}})
BROKEN: Final = json.dumps({"kind": "noop", "input": None})
"""Refused, 422."""


def tool() -> str:
    return "wrk" if shutil.which("wrk") else "threads of one Python process, for want of wrk"


def rate(address: Address, connections: int, seconds: float, path: str = "/tasks") -> float:
    """Return the submits that were answered 202, a second; fails where another answer came."""
    answers, refused, took = post(address, connections, seconds, NOOP, path)
    assert answers > refused == 0, f"{refused} of {answers} submits were refused"
    return answers / took


def post(address: Address, connections: int, seconds: float, body: str, path: str = "/tasks") -> tuple[int, int, float]:
    """Return how many answers came, how many of them were refusals, and in how many seconds."""
    if shutil.which("wrk"):
        return _wrk(address, connections, seconds, body, path)
    statuses = Counter[int]()
    until = time.monotonic() + seconds
    threads = [Thread(target=_post, args=(address, until, body, path, statuses)) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses.total(), sum(count for status, count in statuses.items() if status >= 400), seconds


def _wrk(address: Address, connections: int, seconds: float, body: str, path: str) -> tuple[int, int, float]:
    host, port = address
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{ceil(seconds)}s"]
    done = subprocess.run(
        [*command, "--script", Path(__file__).with_name("load.lua"), f"http://{host}:{port}{path}"],
        env={**os.environ, "BENCH_BODY": body},
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 30,
    )
    (said,) = (line.removeprefix("JSON ") for line in done.stdout.splitlines() if line.startswith("JSON "))
    found = json.loads(said)
    assert found["broken"] == 0, done.stdout
    return found["answers"], found["refused"], found["seconds"]


def _post(address: Address, until: float, body: str, path: str, statuses: Counter[int]) -> None:
    connection = http.client.HTTPConnection(*address)
    while time.monotonic() < until:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        statuses[response.status] += 1
    connection.close()

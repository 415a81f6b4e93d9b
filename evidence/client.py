"""HTTP as a client of the service speaks it, a connection a request, with every exchange written down.

Beside each exchange stands the curl command that repeats it.
"""

import http.client
import json
import secrets
import shlex
from collections.abc import Mapping
from typing import Any

from evidence.journal import Journal, utc_now
from evidence.programs import Address
from evidence.record import TERMINAL, Exchange
from evidence.waiting import wait_until


class Client:
    """Requests to one address. Threads may share one."""

    def __init__(self, journal: Journal, address: Address, timeout: float = 20) -> None:
        self._journal = journal
        self.address = address
        self.timeout = timeout

    def request(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None, label: str = ""
    ) -> Exchange:
        """Send a request; where no answer comes, status is None and `fault` says what happened."""
        sent = {"Content-Type": "application/json", **(headers or {})} if method == "POST" else dict(headers or {})
        began, at = self._journal.now(), utc_now()
        answer: dict[str, Any] = {"status": None, "headers": {}, "body": "", "fault": None}
        connection = http.client.HTTPConnection(*self.address, timeout=self.timeout)
        try:
            connection.request(method, path, body.encode() if body is not None else None, sent)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
            answer |= {"status": response.status, "headers": dict(response.getheaders()), "body": text}
        except (OSError, http.client.HTTPException) as fault:
            answer["fault"] = f"{type(fault).__name__}: {fault}"
        finally:
            connection.close()
        request = {"label": label, "method": method, "path": path, "sent": body or "", "sent_headers": sent}
        times = {"utc": at, "began": began, "seconds": round(self._journal.now() - began, 6)}
        curl = {"curl": self._curl(method, path, body, sent)}
        self._journal.line("http.jsonl", {**request, **answer, **times, **curl})
        return Exchange(**request, **answer, began=began, seconds=times["seconds"])  # type: ignore[arg-type]

    def get(self, path: str, label: str = "") -> Exchange:
        return self.request("GET", path, label=label)

    def post(self, path: str, body: str, headers: Mapping[str, str] | None = None, label: str = "") -> Exchange:
        return self.request("POST", path, body, headers, label)

    def submit(self, kind: str, /, *, label: str = "", key: str | None = None, **given: Any) -> Exchange:
        """Submit a task of this input, with a marker in it that no other has unless `marker` is given."""
        marked = {"marker": secrets.token_hex(8), **given}
        headers = {"Idempotency-Key": key} if key else None
        return self.post("/tasks", json.dumps({"kind": kind, "input": marked}), headers, label)

    def accepted(self, kind: str, /, *, label: str = "", **given: Any) -> int:
        """Submit a task that must be accepted, and return its id. Raises `RuntimeError` when it is not."""
        answer = self.submit(kind, label=label, **given)
        if answer.status != 202 or answer.task_id is None:
            raise RuntimeError(f"a submit was not accepted: {answer.status} {answer.body}")
        return answer.task_id

    def cancel(self, task: int, label: str = "") -> Exchange:
        return self.request("POST", f"/tasks/{task}/cancel", label=label)

    def follow(self, task: int, label: str = "", seconds: float = 20) -> Exchange:
        """Read a task until it is terminal, and return that last read."""
        return self.await_state(task, *TERMINAL, label=label, seconds=seconds)

    def await_state(self, task: int, *states: str, label: str = "", seconds: float = 20) -> Exchange:
        """Read a task until it is in one of these states, and return that last read."""
        read: list[Exchange] = []

        def arrived() -> bool:
            read.append(self.get(f"/tasks/{task}", label=label))
            return read[-1].status == 200 and read[-1].json["state"] in states

        # A second must not become a hundred lines of the same read.
        wait_until(arrived, f"task {task} is {' or '.join(states)}", seconds, every=0.05)
        return read[-1]

    def _curl(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> str:
        host, port = self.address
        words = ["curl", "-si", "-X", method, f"http://{host}:{port}{path}"]
        for name, value in headers.items():
            words += ["-H", f"{name}: {value}"]
        return shlex.join([*words, "--data-binary", body] if body is not None else words)

"""HTTP as a client of the service speaks it, a connection a request."""

import http.client
import json as json_module
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any, Final

from tests.support.waiting import wait_until

TERMINAL: Final = {"SUCCEEDED", "FAILED", "CANCELED"}
_ABSENT: Final = object()


@dataclass(frozen=True)
class Response:
    """An answer; header names are looked up in any case."""

    status: int
    headers: Message
    body: bytes

    def json(self) -> Any:
        return json_module.loads(self.body)


class Client:
    """Requests to one address."""

    def __init__(self, address: tuple[str, int], timeout: float = 20) -> None:
        self.address = address
        self.timeout = timeout

    def request(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        connection = http.client.HTTPConnection(*self.address, timeout=self.timeout)
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, dict(headers or {}))
            answer = connection.getresponse()
            return Response(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Response:
        return self.request("GET", path, headers=headers)

    def post(
        self,
        path: str,
        json: object = _ABSENT,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send `json`, or these very bytes, as application/json unless a header says otherwise."""
        content = json_module.dumps(json) if json is not _ABSENT else body
        return self.request("POST", path, content, {"Content-Type": "application/json", **(headers or {})})

    def submit(
        self,
        kind: str | None = None,
        input: object = None,  # noqa: A002 - the member's own name
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Submit a task; without a kind the body is the default kind's input."""
        document = ({} if input is None else input) if kind is None else {"kind": kind}
        if kind is not None and input is not None:
            document = {"kind": kind, "input": input}
        return self.post("/tasks", json=document, headers=headers)

    def task(self, task_id: int) -> dict[str, Any]:
        answer = self.get(f"/tasks/{task_id}")
        assert answer.status == 200, f"GET of task {task_id}: {answer.status} {answer.body!r}"
        document: dict[str, Any] = answer.json()
        return document

    def cancel(self, task_id: int) -> Response:
        return self.post(f"/tasks/{task_id}/cancel")

    def follow(self, task_id: int, seconds: float = 20) -> dict[str, Any]:
        """Return the task once it has reached a terminal state."""
        last: dict[str, Any] = {}

        def ended() -> bool:
            last.update(self.task(task_id))
            return last["state"] in TERMINAL

        wait_until(ended, f"task {task_id} has ended", seconds, lambda: last)
        return last

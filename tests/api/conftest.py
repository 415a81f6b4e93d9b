"""The web process's parts in this process: the applications of falcon_app on a test's own database."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Self

import pytest
from falcon.testing import Result, TestClient

from falcon_app.admission import Admission
from falcon_app.app import create_admin_app, create_app
from falcon_app.bulk_admission import BulkAdmission
from falcon_app.listener import Listener, bind
from falcon_app.settings import Address
from falcon_app.store import Store
from sql.settings import Settings, read
from tests.support.database import Database
from tests.support.waiting import wait_until

JSON = {"Content-Type": "application/json"}


class Api:
    """Admission, store and both applications, and requests to them without a listener."""

    def __init__(self, url: str, environ: dict[str, str]) -> None:
        self.settings: Settings = read({"DATABASE_URL": url, **environ})
        self.admission = Admission(url, self.settings)
        self.bulk = BulkAdmission(url, self.settings, self.admission.availability, self.admission.kinds)
        self.store = Store(url, self.settings, self.admission.availability)
        self.public = TestClient(create_app(self.admission, self.bulk, self.store, self.settings))
        self.admin = TestClient(create_admin_app(self.admission, self.store, self.settings))
        self.store.open()
        self.admission.start()

    def post(self, body: object, headers: dict[str, str] | None = None) -> Result:
        """Submit a document, or these very bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.public.simulate_post("/tasks", body=content, headers=headers or JSON)

    def post_aside(self, body: object, headers: dict[str, str] | None = None) -> "Future[Result]":
        """Submit from a thread of its own."""
        answer: Future[Result] = Future()

        def run() -> None:
            try:
                answer.set_result(self.post(body, headers))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return answer

    def get(self, task: object) -> Result:
        return self.public.simulate_get(f"/tasks/{task}")

    def cancel(self, task: object) -> Result:
        return self.public.simulate_post(f"/tasks/{task}/cancel")

    def close(self) -> None:
        self.bulk.stop()
        assert self.admission.stop(10)
        self.store.close(10)


MakeApi = Callable[..., Api]


@pytest.fixture
def make_api(database: Database) -> Iterator[MakeApi]:
    """Make an API with these settings: `make_api(TALLY_REQUEST_SECONDS="1")`, perhaps at another URL."""
    made: list[Api] = []

    def make(url: str | None = None, **environ: str) -> Api:
        made.append(Api(url or database.url, environ))
        return made[-1]

    yield make
    for api in made:
        api.close()
    wait_until(lambda: not _our_threads(), "no thread of an API is left", 10, _our_threads)


@pytest.fixture
def api(make_api: MakeApi) -> Api:
    return make_api()


class RawClient:
    """A connection whose bytes a test writes itself."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=20)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def answer(self) -> Result:
        """Read one response, and not a byte of the next."""
        _, _, status = self._file.readline().decode("ascii").strip().partition(" ")
        headers = http.client.parse_headers(self._file)
        body = self._file.read(int(headers["Content-Length"]))
        return Result([body], status, headers.items())

    def is_closed(self, seconds: float = 20) -> bool:
        """Wait for the other side to close."""
        self.socket.settimeout(seconds)
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


@dataclass
class Web:
    """An API behind a listener of this process."""

    api: Api
    listener: Listener

    def connect(self) -> RawClient:
        return RawClient(self.listener.address)


MakeWeb = Callable[..., Web]


@pytest.fixture
def make_web(make_api: MakeApi) -> Iterator[MakeWeb]:
    made: list[Web] = []

    def make(threads: int = 4, max_connections: int = 200, **environ: str) -> Web:
        api = make_api(**environ)
        listener = Listener(
            "web",
            api.public.app,
            bind(Address("127.0.0.1", 0)),
            api.settings,
            threads=threads,
            max_connections=max_connections,
        )
        listener.start()
        made.append(Web(api, listener))
        return made[-1]

    yield make
    for web in made:
        web.listener.drain(monotonic() + 5)
        assert web.listener.join(10)


@pytest.fixture
def web(make_web: MakeWeb) -> Web:
    return make_web()


def request(body: bytes = b"{}", *headers: bytes, method: bytes = b"POST", path: bytes = b"/tasks") -> bytes:
    """Return the bytes of a request, with a Content-Length unless a header speaks of the body."""
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: test", b"Content-Type: application/json", *headers]
    if not any(header.lower().startswith((b"content-length", b"transfer-encoding")) for header in headers):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _our_threads() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("admission", "bulk", "tally-web", "web"))
    ]


def assert_problem(answer: Result, status: int, code: str, pointer: str | None = None) -> dict[str, Any]:
    """Check an RFC 9457 problem, and return it."""
    assert (answer.status_code, answer.json.get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json
    assert problem["status"] == status
    assert problem["type"] == f"urn:pgtally:problem:{code}"
    assert problem["title"] and problem["detail"]
    assert problem.get("pointer") == pointer
    assert (answer.headers.get("retry-after") is not None) == (status == 503)
    return problem


def row_count(database: Database) -> int:
    return int(database.value("select count(*) from tally.task"))


@contextmanager
def queue_locked(database: Database) -> Iterator[None]:
    """Hold the lock that serialises admission."""
    holder = database.connect("test-holder")
    holder.execute("select pg_advisory_lock(tally.queue_lock_key('default'))")
    try:
        yield
    finally:
        holder.execute("select pg_advisory_unlock_all()")


def await_lock_waits(database: Database, count: int = 1) -> None:
    wait_until(
        lambda: database.value("select count(*) from pg_stat_activity where wait_event = 'advisory'") == count,
        f"{count} admissions wait for the queue",
    )

"""The resources of the public API: HTTP in, one call, HTTP out. A document is sent as the database gave it."""

import re
from typing import Final

import falcon
from falcon.routing import BaseConverter

from falcon_app.admission import Admission
from falcon_app.checking import Checking
from falcon_app.errors import Problem, UnfitInput
from falcon_app.payloads import Payload, is_key, read_body, read_payload
from falcon_app.store import Store
from sql.documents import BrokenRule, read
from sql.settings import Settings
from sql.states import TaskState

RETRYABLE: Final = frozenset({TaskState.FAILED, TaskState.CANCELED})
_ID: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class TaskId(BaseConverter):
    """A path segment that may be a task's id: ASCII digits, no sign, no leading zero, within 64 bits."""

    def convert(self, value: str) -> int | None:
        if not _ID.fullmatch(value) or int(value) >= 2**63:
            return None
        return int(value)


class Tasks:
    """`/tasks`"""

    def __init__(self, checking: Checking, admission: Admission, settings: Settings) -> None:
        self._checking = checking
        self._admission = admission
        self._settings = settings

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        key = _idempotency_key(req)
        body = read_body(req, self._settings.max_body_bytes)
        payload = read_payload(body, self._settings.max_depth, self._settings.max_body_bytes)
        _submit(resp, payload, self._checking, self._admission, req.context.deadline, key)


def _submit(
    resp: falcon.Response,
    payload: Payload,
    checking: Checking,
    admission: Admission,
    deadline: float,
    key: str | None,
) -> None:
    """Make a task, and answer with it."""
    try:
        document = admission.submit(payload, checking.one(payload, deadline), deadline, key)
    except UnfitInput as error:
        raise Problem("invalid-input", str(error), pointer=payload.at + error.pointer) from None
    _answer(resp, falcon.HTTP_202, document)
    resp.set_header("Location", f"/tasks/{_id(document)}")


def _idempotency_key(req: falcon.Request) -> str | None:
    key = req.get_header("Idempotency-Key")
    if key is not None and not is_key(key):
        raise Problem("bad-request", "expected Idempotency-Key to be 1 to 255 printable ASCII characters")
    return key


class Task:
    """`/tasks/{id}`"""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, req: falcon.Request, resp: falcon.Response, task: int) -> None:
        _answer(resp, falcon.HTTP_200, self._store.read(task, req.context.deadline))

    on_head = on_get


class TaskCancel:
    """`/tasks/{id}/cancel`"""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, req: falcon.Request, resp: falcon.Response, task: int) -> None:
        _answer(resp, falcon.HTTP_202, self._store.cancel(task, req.context.deadline))


class TaskRetry:
    """`/tasks/{id}/retry`: another task like one that has failed or was canceled, which stays as it is."""

    def __init__(self, checking: Checking, admission: Admission, store: Store) -> None:
        self._checking = checking
        self._admission = admission
        self._store = store

    def on_post(self, req: falcon.Request, resp: falcon.Response, task: int) -> None:
        key = _idempotency_key(req)
        deadline = req.context.deadline
        source = self._store.source(task, deadline)
        if source.state not in RETRYABLE:
            raise Problem("not-retryable", f"task {task} is {source.state}; only a FAILED or CANCELED one is retried")
        try:
            value = read(source.input)
        except BrokenRule as error:
            raise Problem("invalid-input", error.rule, pointer=f"/input{error.pointer}") from None
        payload = Payload(source.kind, source.input, value, queue=source.queue, retry_of=task)
        _submit(resp, payload, self._checking, self._admission, deadline, key)


def _answer(resp: falcon.Response, status: str, document: str) -> None:
    resp.status = status
    resp.content_type = falcon.MEDIA_JSON
    resp.data = document.encode("utf-8")


def _id(document: str) -> str:
    """Return the id without reading the whole document, which starts `{"id":7,`."""
    return document[len('{"id":') : document.index(",")]

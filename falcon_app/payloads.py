"""A request's body to what it submits, or the place that breaks a rule.

Which values may be stored is `sql.documents`; here is only what a submission looks like. One task is an object with
`kind` and `input`, and nothing else; or an object without `kind`, which as a whole is the input of the default kind.
Many are `{"tasks": [...]}`, each an object with `kind` and `input`, and perhaps an `idempotency_key`.
"""

import json
import re
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

import falcon

from falcon_app.errors import Problem
from sql.documents import MAX_BYTES, BrokenRule, Json, encode, parse

DEFAULT_KIND: Final = "text.stats"
LONGEST_KIND: Final = 255
MOST_TASKS: Final = 1000
"""In one request."""
UNLIMITED: Final = 2**63 - 1
_KEY: Final = re.compile(r"[ -~]{1,255}", re.ASCII)
_PLACE: Final = re.compile(r"/tasks/(0|[1-9][0-9]*)(?:/|$)", re.ASCII)
_DEPTH_OF_TASKS: Final = 3
"""Levels above the input of one of many: the body, the array, the task."""


class Payload(NamedTuple):
    """A task to be submitted. Its input as JSON text that the database takes, as the value it is, and where it lies.

    One that repeats another by hand names that one, and goes to the same queue; any other goes where its kind's do.
    """

    kind: str
    input: str
    value: Json
    at: str = "/input"
    queue: str | None = None
    retry_of: int | None = None


class OneOfMany(TypedDict):
    """A task of a request that submits many, as it was sent; every rule was checked."""

    kind: str
    input: dict[str, Any]
    idempotency_key: NotRequired[str]


def is_key(text: object) -> bool:
    """Can this be an idempotency key?"""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


def read_body(req: falcon.Request, max_bytes: int) -> bytes:
    """Return the body of a request, which must be declared as JSON. Raises `Problem`."""
    encoding = req.get_header("Content-Encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise Problem("unsupported-media-type", "expected a body without Content-Encoding")
    body = req.bounded_stream.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise Problem("body-too-large", f"the limit is {max_bytes} bytes")
    if body or req.content_type is not None:
        check_media_type(req.content_type)
    return body


def check_media_type(content_type: str | None) -> None:
    """Raise `Problem` unless the body is declared as application/json in UTF-8."""
    if content_type is None:
        raise Problem("unsupported-media-type", "expected Content-Type: application/json, got none")
    media_type, parameters = falcon.parse_header(content_type)
    charset = parameters.get("charset", "utf-8").lower()
    if media_type.strip().lower() != "application/json" or charset not in {"utf-8", "utf8"}:
        raise Problem("unsupported-media-type", f"expected Content-Type: application/json, got {content_type!r}")


def read_payload(body: bytes, max_depth: int, max_bytes: int = MAX_BYTES) -> Payload:
    """Return what a body submits. Raises `Problem`."""
    # One level more: the input's depth is counted from the input.
    value = _object(body, max_depth + 1, max_bytes)
    if "kind" not in value:
        return Payload(DEFAULT_KIND, _stored(value, "", max_depth), value, "")
    _check_task(value, ("kind", "input"))
    return Payload(value["kind"], _stored(value["input"], "/input", max_depth), value["input"])


def read_tasks(body: bytes, max_depth: int, max_bytes: int = MAX_BYTES) -> list[OneOfMany]:
    """Return the tasks that a body submits. Raises `Problem`, with the index of the first task that breaks a rule."""
    try:
        value = _object(body, max_depth + _DEPTH_OF_TASKS, max_bytes)
    except Problem as problem:
        place = _PLACE.match(problem.pointer or "")
        problem.index = int(place[1]) if place else None
        raise
    _check_members(value, ("tasks",))
    tasks = value.get("tasks")
    if not isinstance(tasks, list) or not 1 <= len(tasks) <= MOST_TASKS:
        raise Problem("invalid-input", f"expected tasks to be an array of 1 to {MOST_TASKS} tasks", pointer="/tasks")
    keys: dict[str, int] = {}
    for index, task in enumerate(tasks):
        try:
            _check_one_of_many(task, index, keys)
        except Problem as problem:
            problem.pointer, problem.index = f"/tasks/{index}{problem.pointer}", index
            raise
    return tasks


def tasks_text(tasks: list[OneOfMany]) -> str:
    """Return the tasks as JSON text that the database takes."""
    return _ENCODED(tasks)


# What was read by the rules needs no check when it is written.
_ENCODED: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _object(body: bytes, max_depth: int, max_bytes: int) -> dict[str, Any]:
    """Return the object that a body is."""
    if not body.strip():
        raise Problem("malformed-body", "the body is empty, expected a JSON object")
    try:
        value = parse(body, max_depth=max_depth, max_bytes=max_bytes)
    except BrokenRule as error:
        raise Problem("malformed-body", error.rule, pointer=error.pointer) from None
    if not isinstance(value, dict):
        raise Problem("invalid-input", "expected a JSON object", pointer="")
    return value


def _check_one_of_many(task: object, index: int, keys: dict[str, int]) -> None:
    """Check a task of a request that submits many, and enter its key among those that came before."""
    if not isinstance(task, dict):
        raise Problem("invalid-input", "expected a task to be an object", pointer="")
    _check_task(task, ("kind", "input", "idempotency_key"))
    if "idempotency_key" not in task:
        return
    key = task["idempotency_key"]
    if not is_key(key):
        detail = "expected idempotency_key to be a string of 1 to 255 printable ASCII characters"
        raise Problem("invalid-input", detail, pointer="/idempotency_key")
    first = keys.setdefault(key, index)
    if first != index:
        raise Problem("invalid-input", f"task {first} of the request has this key too", pointer="/idempotency_key")


def _check_task(value: dict[str, Any], members: tuple[str, ...]) -> None:
    _check_members(value, members)
    kind = value.get("kind")
    if not isinstance(kind, str) or not 1 <= len(kind.encode("utf-8")) <= LONGEST_KIND:
        raise Problem("invalid-input", f"expected kind to be a string of 1 to {LONGEST_KIND} bytes", pointer="/kind")
    if "input" not in value:
        raise Problem("invalid-input", "input is missing, expected an object", pointer="/input")
    if not isinstance(value["input"], dict):
        raise Problem("invalid-input", "expected input to be an object", pointer="/input")


def _check_members(value: dict[str, Any], members: tuple[str, ...]) -> None:
    for member in value:
        if member not in members:
            pointer = f"/{member.replace('~', '~0').replace('/', '~1')}"
            raise Problem("unknown-member", f"expected only {', '.join(members)}", pointer=pointer)


def _stored(value: object, at: str, max_depth: int) -> str:
    """Return a value as JSON text; its size is limited already."""
    try:
        return encode(value, max_depth=max_depth, max_bytes=UNLIMITED)
    except BrokenRule as error:
        raise Problem("malformed-body", error.rule, pointer=at + error.pointer) from None

"""A request's body to a checked submission, or the place that breaks a rule.

Which values may be stored is `sql.documents`; here is only what a submission looks like: an object with `kind` and
`input`, and nothing else; or an object without `kind`, which as a whole is the input of the default kind.
"""

from typing import Final, NamedTuple

import falcon

from falcon_app.errors import Problem
from sql.documents import MAX_BYTES, BrokenRule, encode, parse

DEFAULT_KIND: Final = "text.stats"
LONGEST_KIND: Final = 255
MEMBERS: Final = ("kind", "input")
UNLIMITED: Final = 2**63 - 1


class Payload(NamedTuple):
    """What a client submits: the kind, and the input as JSON text that the database takes."""

    kind: str
    input: str


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
    if not body.strip():
        raise Problem("malformed-body", "the body is empty, expected a JSON object")
    try:
        # One level more: the input's depth is counted from the input.
        value = parse(body, max_depth=max_depth + 1, max_bytes=max_bytes)
    except BrokenRule as error:
        raise Problem("malformed-body", error.rule, pointer=error.pointer) from None
    if not isinstance(value, dict):
        raise Problem("invalid-input", "expected a JSON object", pointer="")
    if "kind" not in value:
        return Payload(DEFAULT_KIND, _stored(value, "", max_depth))
    for member in value:
        if member not in MEMBERS:
            pointer = f"/{member.replace('~', '~0').replace('/', '~1')}"
            raise Problem("unknown-member", "expected only kind and input", pointer=pointer)
    kind = value["kind"]
    if not isinstance(kind, str) or not 1 <= len(kind.encode("utf-8")) <= LONGEST_KIND:
        raise Problem("invalid-input", f"expected kind to be a string of 1 to {LONGEST_KIND} bytes", pointer="/kind")
    if "input" not in value:
        raise Problem("invalid-input", "input is missing, expected an object", pointer="/input")
    if not isinstance(value["input"], dict):
        raise Problem("invalid-input", "expected input to be an object", pointer="/input")
    return Payload(kind, _stored(value["input"], "/input", max_depth))


def _stored(value: object, at: str, max_depth: int) -> str:
    """Return a value as JSON text; its size is limited already."""
    try:
        return encode(value, max_depth=max_depth, max_bytes=UNLIMITED)
    except BrokenRule as error:
        raise Problem("malformed-body", error.rule, pointer=at + error.pointer) from None

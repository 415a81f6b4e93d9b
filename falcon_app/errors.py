"""Every way a request can go wrong: exception to problem code, and problem code to status and title.

Problem            the request itself is refused, with its code and, where there is one, the place
Overloaded         the queue is full: no row
KeyReused          the idempotency key has a task of another body: no row
KeyInProgress      the idempotency key is held by an open transaction: no row of this request
UnfitInput         the input does not fit the schema of its kind: no row
OtherQueue         a task of many goes to another queue than the first: no row

What `sql.errors` raises is answered by the same table. A problem body is RFC 9457; its `detail` never repeats
what the driver said of the world, only what the database said of a client's own row.
"""

import json
from typing import Final

from sql.errors import AlreadyTerminal, DatabaseAway, Misconfigured, NotFound, OutcomeUnknown, RowRefused, TallyError

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1

PROBLEMS: Final[dict[str, tuple[int, str]]] = {
    "bad-request": (400, "The request cannot be read"),
    "malformed-body": (400, "The body is not JSON that can be stored"),
    "not-found": (404, "There is nothing here"),
    "method-not-allowed": (405, "The method is not allowed here"),
    "already-terminal": (409, "The task has ended already"),
    "not-retryable": (409, "The task cannot be retried"),
    "body-too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body must be application/json"),
    "invalid-input": (422, "The input cannot be accepted"),
    "unknown-member": (422, "The body has an unknown member"),
    "key-reused": (422, "The idempotency key belongs to another body"),
    "headers-too-large": (431, "The request's headers are too large"),
    "internal-error": (500, "A fault of this service"),
    "not-implemented": (501, "Not implemented"),
    "overloaded": (503, "The queue is full"),
    "database-away": (503, "The database cannot be asked now"),
    "key-in-progress": (503, "The idempotency key is being used"),
    "unhealthy": (503, "This process should be replaced"),
    "outcome-unknown": (504, "What became of the request is unknown"),
}


class Problem(Exception):
    """A request that is refused: a code of `PROBLEMS`, what is wrong, and the place as a JSON pointer.

    `index` is the place, among the tasks of a request that submits many, of the one to blame.
    """

    def __init__(self, code: str, detail: str, *, pointer: str | None = None, index: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.pointer = pointer
        self.index = index


class Overloaded(TallyError):
    """The queue's open count has reached its capacity: no row was made."""


class KeyReused(TallyError):
    """The idempotency key has a task that was submitted with another body: no row was made."""


class KeyInProgress(TallyError):
    """The idempotency key is held by an open transaction, whose end would tell: no row was made."""


class UnfitInput(TallyError):
    """The input does not fit the schema of its kind: no row was made. `pointer` is the place, from the input."""

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer


class OtherQueue(TallyError):
    """A task of many goes to another queue than the first: no row was made."""


_AWAY: Final = "The database could not be asked in time. This request changed nothing; try again."
_RAISED: Final[tuple[tuple[type[TallyError], str, str | None], ...]] = (
    (NotFound, "not-found", None),
    (AlreadyTerminal, "already-terminal", None),
    (RowRefused, "invalid-input", None),
    (UnfitInput, "invalid-input", None),
    (OtherQueue, "invalid-input", None),
    (Overloaded, "overloaded", "As many tasks are open as the queue may hold. No task was made; try again."),
    (KeyReused, "key-reused", None),
    (
        KeyInProgress,
        "key-in-progress",
        "Another transaction holds this idempotency key and has not ended. No task was made; try again.",
    ),
    (
        OutcomeUnknown,
        "outcome-unknown",
        "The database did not tell in time whether this was done. Ask again, a submit under the same idempotency key.",
    ),
    (Misconfigured, "database-away", "The database is not set up for this service. Nothing was changed."),
    (DatabaseAway, "database-away", _AWAY),
)


def problem_of(error: TallyError) -> Problem:
    """Return the problem that an error of the database's side is answered with."""
    for kind, code, detail in _RAISED:
        if isinstance(error, kind):
            return Problem(code, str(error) if detail is None else detail)
    return Problem("internal-error", "This fault was logged.")


def problem_body(problem: Problem) -> bytes:
    """Return the problem as RFC 9457 JSON, always valid UTF-8."""
    status, title = PROBLEMS[problem.code]
    body: dict[str, object] = {
        "type": f"urn:pgtally:problem:{problem.code}",
        "title": title,
        "status": status,
        "detail": problem.detail,
        "code": problem.code,
    }
    if problem.pointer is not None:
        body["pointer"] = problem.pointer
    if problem.index is not None:
        body["index"] = problem.index
    return json.dumps(body).encode("ascii")

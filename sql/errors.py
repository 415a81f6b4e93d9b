"""What can go wrong with a statement, told apart once, here, by SQLSTATE.

TallyError
├── Refusal            a function of ours refuses this call; nothing was changed
│   ├── NotFound           TL404
│   ├── AlreadyTerminal    TL409
│   ├── Condemned          TL410: this dispatcher is stopped, or unknown to the database
│   ├── TasksLeft          TL411
│   ├── ClaimFenced        TL412
│   ├── ClaimedAfterAll    TL413
│   ├── BeatMoved          TL414
│   └── KeyTaken           TL415
├── RowRefused         a trigger, a constraint or a data rule refuses what was to be written
├── Misconfigured      a privilege or an object is missing (class 42)
├── NotDirect          a pooler is where a session of one's own is needed
├── OutcomeUnknown     COMMIT was sent and its reply never came, or does not tell
└── DatabaseAway       the world is away for a while: nobody's fault, worth another try
    ├── DatabaseLost       the connection broke or its deadline passed: what the last statement did is unknown
    └── DatabaseBusy       an error reply over a living connection (a timeout, a lock, a deadlock, resources,
                           read-only): the statement changed nothing
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg


class TallyError(Exception):
    """What every error of this module is."""

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Refusal(TallyError):
    """A function of ours refuses this call; nothing was changed."""


class NotFound(Refusal):
    """There is no such task, queue or dispatcher."""


class AlreadyTerminal(Refusal):
    """The task has ended; terminal states never change."""


class Condemned(Refusal):
    """This dispatcher is stopped, or unknown to the database: it may neither claim nor beat."""


class TasksLeft(Refusal):
    """A dispatcher may not leave while a RUNNING row is under its name."""


class ClaimFenced(Refusal):
    """A settlement has fenced this claim's number off."""


class ClaimedAfterAll(Refusal):
    """The task whose claim seemed refused is RUNNING."""


class BeatMoved(Refusal):
    """The dispatcher that was to be condemned has beaten since it was watched."""


class KeyTaken(Refusal):
    """The idempotency key's task was submitted with another kind or input."""


class RowRefused(TallyError):
    """A trigger, a constraint or a data rule refuses what was to be written."""


class Misconfigured(TallyError):
    """A privilege or an object is missing."""


class NotDirect(TallyError):
    """A pooler, or whatever else shares sessions, is where a session of one's own is needed."""

    def __init__(self) -> None:
        super().__init__(
            "DATABASE_DIRECT_URL (or DATABASE_URL, where only that is set) leads to a connection pooler; "
            "dispatchers and migrations need the server itself"
        )


class OutcomeUnknown(TallyError):
    """COMMIT was sent and its reply never came, or does not tell."""


class DatabaseAway(TallyError):
    """The world is away for a while."""


class DatabaseLost(DatabaseAway):
    """The connection broke or its deadline passed: what the last statement did is unknown."""


class DatabaseBusy(DatabaseAway):
    """An error reply over a living connection: the statement changed nothing."""


READ_ONLY: Final = "25006"
TIMED_OUT: Final = "57014"
LOCK_NOT_AVAILABLE: Final = "55P03"
NOTIFICATIONS_FULL: Final = "54000"
"""At COMMIT: the server's notification queue is full, and a transaction that notifies cannot commit."""

_REFUSALS: Final[dict[str, type[Refusal]]] = {
    "TL404": NotFound,
    "TL409": AlreadyTerminal,
    "TL410": Condemned,
    "TL411": TasksLeft,
    "TL412": ClaimFenced,
    "TL413": ClaimedAfterAll,
    "TL414": BeatMoved,
    "TL415": KeyTaken,
}

# Lock not available and prepared statement gone (a pooler's doing) are of the moment; so is every code of the
# classes connection exception (over a living connection it is a foreign server's), transaction rollback, insufficient
# resources, operator intervention, system error, internal error.
_BUSY_CODES: Final = frozenset({READ_ONLY, LOCK_NOT_AVAILABLE, "55006", "26000"})
_BUSY_CLASSES: Final = frozenset({"08", "40", "53", "57", "58", "XX"})


def translate(error: psycopg.Error) -> TallyError:
    """Say what an error of the driver means to us. The message is the server's or the driver's first line."""
    sqlstate = error.sqlstate
    message = (error.diag.message_primary or str(error).strip() or type(error).__name__).splitlines()[0]
    if sqlstate is not None and sqlstate in _REFUSALS:
        return _REFUSALS[sqlstate](message, sqlstate=sqlstate)
    # PgBouncer's own messages, which are in English, have only the other one.
    fatal = (error.diag.severity_nonlocalized or error.diag.severity) in {"FATAL", "PANIC"}
    if sqlstate is None and isinstance(error, psycopg.DataError | psycopg.ProgrammingError):
        # The driver itself cannot send this value (a NUL in a text): the row's fault, not the world's.
        return RowRefused(message)
    if sqlstate is None or fatal:
        return DatabaseLost(message, sqlstate=sqlstate)
    if sqlstate in _BUSY_CODES or sqlstate[:2] in _BUSY_CLASSES:
        return DatabaseBusy(message, sqlstate=sqlstate)
    if sqlstate.startswith(("42", "3D", "3F")):
        return Misconfigured(message, sqlstate=sqlstate)
    return RowRefused(message, sqlstate=sqlstate)


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into ours, at the edge."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error

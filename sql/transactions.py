"""A session and its transactions where a transaction pooler may be between: nothing that it can't share.

No session state and no prepared statements: every transaction says its isolation level and its timeouts itself.
"""

from datetime import timedelta
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg import ClientCursor

from sql import statement
from sql.connect import Connection, ReadOnly, connection_options, settings
from sql.errors import DatabaseBusy, DatabaseLost, OutcomeUnknown, translate, translated

HARMLESS_WARNINGS: Final = frozenset({"asyncQueueFillWarning", "exec_stmt_raise"})
"""Where in the server's own code a warning comes from that says nothing of the commit: that the notification queue
fills up, and what a trigger raises. Its text is in the server's language, and it has no code of its own."""
TIDY_UP: Final = timedelta(seconds=0.2)
"""A statement is told to end this long before the deadline, so that a lock is not taken for a lost server."""


def session_options(name: str, connect_timeout: timedelta) -> dict[str, Any]:
    """Return what a session is opened with, beside the URL; transactions are opened by `begin`."""
    return {**connection_options(name, connect_timeout), "autocommit": True, "prepare_threshold": None}


def connect(url: str, name: str, connect_timeout: timedelta) -> Connection:
    """Open a session. Raises `DatabaseAway`."""
    with translated():
        return Connection.connect(url, **session_options(name, connect_timeout))


def begin(connection: Connection, limit: timedelta) -> None:
    """Open a transaction, and say how long its statements may run.

    Raises `ReadOnly` where nothing can be written: what a standby tells may be long past, so it is not asked.
    """
    with ClientCursor(connection) as cursor:
        cursor.execute(statement("queries/begin"), settings(limit))
        cursor.nextset()
        row = cursor.fetchone()
    if row is None or not row[0]:
        connection.shun()
        raise ReadOnly


def statement_limit(longest: timedelta, deadline: float) -> timedelta:
    """Return how long a statement may run to end well before the deadline. Raises `DatabaseBusy` if it can't."""
    left = timedelta(seconds=deadline - monotonic()) - TIDY_UP
    if left < timedelta(milliseconds=10):
        raise DatabaseBusy("no time is left to ask the database")
    return min(longest, left)


def bound_statements(connection: Connection, limit: timedelta) -> None:
    """Say, in an open transaction, how long its next statements may run."""
    connection.execute(statement("queries/transaction_settings"), settings(limit))


def commit(connection: Connection) -> None:
    """Send COMMIT and read its reply.

    Raises `OutcomeUnknown` when the reply was lost or does not tell: a broken connection, a deadline, a FATAL, or
    class 08 or 57 (the wait was interrupted after the commit record may have been written). With any other error
    the transaction was rolled back for certain.
    """
    warnings: list[str] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        # A wait for a standby that was given up is only a warning: committed here, perhaps nowhere else.
        doubtful = (diagnostic.sqlstate or "").startswith(("01", "57"))
        if doubtful and diagnostic.source_function not in HARMLESS_WARNINGS:
            warnings.append(diagnostic.message_primary or "")

    connection.add_notice_handler(note)
    try:
        connection.commit()
    except psycopg.Error as error:
        found = translate(error)
        if isinstance(found, DatabaseLost) or (found.sqlstate or "").startswith(("01", "08", "57")):
            connection.close()
            raise OutcomeUnknown(str(found), sqlstate=found.sqlstate) from error
        raise found from error
    finally:
        connection.remove_notice_handler(note)
    if warnings:
        raise OutcomeUnknown(warnings[0], sqlstate="01000")


def abandon(connection: Connection) -> None:
    """Leave whatever transaction is open, or the session with it."""
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()

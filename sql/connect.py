"""A connection as both programs need it: named, and with a deadline on every call.

PostgreSQL may stop answering without closing (SIGSTOP, a lost network), and `statement_timeout` cannot help then.
So every wait for the server ends on the monotonic clock: at `deadline` where one is set, else after `patience`.
When it passes, the connection is closed, never reused, and `DeadlinePassed` is raised; cancel requests are not
sent. psycopg passes every wait through `Connection.wait`, which takes a timeout; only `connect` does not, and
has `connect_timeout`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import uniform
from time import monotonic
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from sql import statement
from sql.addresses import Address, Addresses
from sql.errors import READ_ONLY, DatabaseBusy, DatabaseLost, NotDirect, translated

T = TypeVar("T")

_addresses: Final = Addresses()
"""Of the whole process: what one session finds out spares the others the wait."""

FIRST_BACKOFF_SECONDS: Final = 0.025


def backoff_seconds(failures: int, longest: timedelta) -> float:
    """Return how long to wait after so many failures in a row: from 25 ms, doubling up to `longest`, with jitter."""
    most = min(longest.total_seconds(), FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 20))
    return uniform(FIRST_BACKOFF_SECONDS, max(FIRST_BACKOFF_SECONDS, most))  # noqa: S311 - jitter


class DeadlinePassed(psycopg.OperationalError):
    """The server did not answer in time; the connection is closed."""


class ReadOnly(DatabaseBusy):
    """Nothing can be written through this connection: a standby, or a database that is closed to writers."""

    def __init__(self, message: str = "the database is read-only") -> None:
        super().__init__(message, sqlstate=READ_ONLY)


class Connection(psycopg.Connection[TupleRow]):
    """A psycopg connection whose every wait ends."""

    patience: float = 2.5
    """Seconds for each wait, while no deadline is set."""

    deadline: float | None = None
    """A moment of `time.monotonic` by which every wait ends; see `by`."""

    answered_at = 0.0
    """The moment of `time.monotonic` when the server's last reply was read."""

    _conninfo, _address = "", Address("", "", "")

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:
        try:
            connection = super().connect(_addresses.in_order(conninfo), **options)
        except psycopg.Error as error:
            # The driver's frame holds the socket of an attempt that ran out of time, the error holds the frame, and
            # the frame the error. A frozen server would find every attempt a session when it thaws.
            raise error.with_traceback(None) from None
        info = connection.info
        connection._conninfo = conninfo  # noqa: SLF001 - our own
        connection._address = Address(info.host, info.hostaddr, str(info.port))  # noqa: SLF001
        _addresses.answered(conninfo, connection._address)  # noqa: SLF001
        return connection

    def shun(self) -> None:
        """Let the next session be opened elsewhere, if there is another address."""
        _addresses.shun(self._conninfo, self._address)

    @contextmanager
    def by(self, deadline: float) -> Iterator[None]:
        """Let every wait inside end by this moment of the monotonic clock."""
        self.deadline = deadline
        try:
            yield
        finally:
            self.deadline = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        ours = self.patience if self.deadline is None else max(0.0, self.deadline - monotonic())
        if timeout is not None and timeout < ours:
            # `notifies` ends its own wait: nothing is wrong when that is the nearer one.
            return super().wait(gen, interval, timeout)
        try:
            result = super().wait(gen, interval, ours)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - the only name psycopg has for it
            self.close()
            if ours > 0:
                self.shun()
            raise DeadlinePassed("the database did not answer in time") from None
        self.answered_at = monotonic()
        return result

    def has_answered_within(self, time: timedelta) -> bool:
        """Did the server answer so short a time ago, and has it not left since?"""
        if self.closed or monotonic() - self.answered_at > time.total_seconds():
            return False
        try:
            # Neither waits. The second finds the end of the connection behind what the server said before it left.
            self.pgconn.consume_input()
            self.pgconn.consume_input()
        except psycopg.Error:
            return False
        return True


def connect(url: str, *, name: str, connect_timeout: timedelta, statement_timeout: timedelta) -> Connection:
    """Open a direct session, autocommit, named in pg_stat_activity, its timeouts set by itself.

    Raises `DatabaseAway` (of `sql.errors`) when it can't, at the latest after `connect_timeout` for each address, and
    `NotDirect` where a pooler answers: behind one, advisory locks, LISTEN and these very settings are anybody's.
    """
    with translated():
        connection = Connection.connect(url, autocommit=True, **connection_options(name, connect_timeout))
        connection.patience = statement_timeout.total_seconds() + 0.5
        try:
            # A server introduces itself by the process id it has; a pooler makes one up.
            parameters = {**settings(statement_timeout), "backend_pid": connection.info.backend_pid}
            is_direct = connection.execute(statement("queries/session_settings"), parameters).rowcount > 0
        except BaseException:
            connection.close()
            raise
    if not is_direct:
        connection.close()
        raise NotDirect
    return connection


@contextmanager
def confirmed(connection: Connection) -> Iterator[None]:
    """Raise `DatabaseLost`, the session closed, where a wait for a standby inside was broken off."""
    broken_off: list[str] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.source_function == "SyncRepWaitForLSN":
            broken_off.append(diagnostic.message_primary or "")

    connection.add_notice_handler(note)
    try:
        yield
    finally:
        connection.remove_notice_handler(note)
    if broken_off:
        connection.close()
        raise DatabaseLost(broken_off[0], sqlstate="01000")


def require_writable(connection: Connection) -> None:
    """Raise `ReadOnly` unless the database can be written through this connection."""
    with translated():
        row = connection.execute(statement("queries/probe")).fetchone()
    if row is None or not row[0]:
        connection.shun()
        raise ReadOnly


def connection_options(name: str, connect_timeout: timedelta) -> dict[str, Any]:
    """What every connection of ours is opened with; nothing a pooler refuses, nothing of the person's environment."""
    seconds = max(2, round(connect_timeout.total_seconds()))
    return {"application_name": name, "connect_timeout": seconds, "client_encoding": "UTF8"}


def settings(statement_timeout: timedelta) -> dict[str, str]:
    """Return the parameters of `queries/session_settings` and `queries/transaction_settings`."""
    return {"statement_timeout": f"{round(statement_timeout.total_seconds() * 1000)}ms"}

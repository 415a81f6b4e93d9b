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
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from sql import statement
from sql.errors import translated

T = TypeVar("T")


FIRST_BACKOFF_SECONDS: Final = 0.025


def backoff_seconds(failures: int, longest: timedelta) -> float:
    """Return how long to wait after so many failures in a row: from 25 ms, doubling up to `longest`, with jitter."""
    most = min(longest.total_seconds(), FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 20))
    return uniform(FIRST_BACKOFF_SECONDS, max(FIRST_BACKOFF_SECONDS, most))  # noqa: S311 - jitter


class DeadlinePassed(psycopg.OperationalError):
    """The server did not answer in time; the connection is closed."""


class Connection(psycopg.Connection[TupleRow]):
    """A psycopg connection whose every wait ends."""

    patience: float = 2.5
    """Seconds for each wait, while no deadline is set."""

    deadline: float | None = None
    """A moment of `time.monotonic` by which every wait ends; see `by`."""

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
            return super().wait(gen, interval, ours)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - the only name psycopg has for it
            self.close()
            raise DeadlinePassed("the database did not answer in time") from None


def connect(url: str, *, name: str, connect_timeout: timedelta, statement_timeout: timedelta) -> Connection:
    """Open a direct session, autocommit, named in pg_stat_activity, its timeouts set by itself.

    Raises `DatabaseAway` (of `sql.errors`) when it can't, at the latest after `connect_timeout` for each address.
    """
    with translated():
        connection = Connection.connect(url, autocommit=True, **connection_options(name, connect_timeout))
        connection.patience = statement_timeout.total_seconds() + 0.5
        try:
            connection.execute(statement("queries/session_settings"), settings(statement_timeout))
        except BaseException:
            connection.close()
            raise
    return connection


def connection_options(name: str, connect_timeout: timedelta) -> dict[str, Any]:
    """What every connection of ours is opened with; nothing a pooler refuses, nothing of the person's environment."""
    seconds = max(2, round(connect_timeout.total_seconds()))
    return {"application_name": name, "connect_timeout": seconds, "client_encoding": "UTF8"}


def settings(statement_timeout: timedelta) -> dict[str, str]:
    """Return the parameters of `queries/session_settings` and `queries/transaction_settings`."""
    return {"statement_timeout": f"{round(statement_timeout.total_seconds() * 1000)}ms"}

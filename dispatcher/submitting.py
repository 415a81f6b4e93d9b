"""Submitting from Python: in a transaction of its own, or in the caller's.

Either way it is one call of `tally.submit_task`. In the caller's own transaction the task is there exactly if that
commits, and everything else is the caller's business: its waits, its errors, its end.

A transaction of its own reaches the database as the environment says, in any process that submits: sessions are
opened when they are needed, a few at most, and kept. A process that was forked opens its own. There is no thread
behind this, which a fork would lose, and nothing that a transaction pooler can't share.
"""

import atexit
import os
from collections import deque
from contextlib import suppress
from functools import cache
from threading import Semaphore
from time import monotonic, sleep
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from dispatcher.inputs import InputType, written
from sql import embedded, statement
from sql.connect import Connection, DeadlinePassed, backoff_seconds
from sql.errors import DatabaseAway, DatabaseBusy, DatabaseLost, OutcomeUnknown, translated
from sql.settings import Settings, read
from sql.transactions import abandon, begin, commit, connect, statement_limit

MOST_SESSIONS: Final = 4
PATIENCE_SECONDS: Final = 1.0
"""For tidying a session up, where no deadline is set any more."""


@cache
def settings() -> Settings:
    """Return the settings of the environment, read once. Raises `BadSettings`."""
    return read(os.environ)


def submission(
    kind: str,
    given: object,
    input_type: InputType | None,
    *,
    idempotency_key: str | None,
    queue: str,
    priority: int,
) -> dict[str, object]:
    """Return the parameters of `queries/submit_task`. Raises `BadInput`."""
    limits = settings()
    text = written(given, input_type, max_depth=limits.max_depth, max_bytes=limits.max_body_bytes)
    return {
        "kind": kind,
        "input": text,
        "queue": queue,
        "idempotency_key": idempotency_key,
        "priority": priority,
        "notify": True,
    }


def submit_in(connection: object, parameters: dict[str, object]) -> int:
    """Submit in the transaction of a psycopg connection or cursor; returns the task's id. Raises as `submit` does.

    Raises `TypeError` for anything else.
    """
    given = connection.connection if isinstance(connection, psycopg.Cursor) else connection
    if not isinstance(given, psycopg.Connection):
        raise TypeError(
            "expected a psycopg Connection or Cursor (of SQLAlchemy: connection.connection.driver_connection), "
            f"got {type(connection).__module__}.{type(connection).__qualname__}"
        )
    with translated(), psycopg.Cursor(given, row_factory=tuple_row) as cursor:
        return _submitted(cursor, parameters)


def submit(parameters: dict[str, object]) -> int:
    """Submit in a transaction of its own, and return the task's id once that is committed.

    At the latest after TALLY_REQUEST_SECONDS, besides the wait for a connection. Raises `NotFound` (no such queue),
    `KeyTaken`, `RowRefused`, `Misconfigured`, and `DatabaseAway`: no row was made. Raises `OutcomeUnknown` where the
    reply to COMMIT was lost: the row may or may not be there. Under an idempotency key it is asked again, until then.
    """
    sessions = _SESSIONS.get(os.getpid()) or _SESSIONS.setdefault(os.getpid(), _Sessions(settings()))
    deadline = monotonic() + settings().request.total_seconds()
    unknown: OutcomeUnknown | None = None
    failures = 0
    while True:
        try:
            return sessions.submit(parameters, deadline)
        except OutcomeUnknown as error:
            unknown = error
            if parameters["idempotency_key"] is None:
                raise
        except DatabaseAway:
            if unknown is None:
                raise
        pause = backoff_seconds(failures, settings().backoff)
        failures += 1
        if monotonic() + pause >= deadline:
            raise unknown
        sleep(pause)


class _Sessions:
    """The sessions of one process, shared by its threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = settings.database_url or embedded.url()
        self._process = os.getpid()
        self._is_closed = False
        self._room = Semaphore(MOST_SESSIONS)
        self._idle: deque[Connection] = deque()
        atexit.register(self.close)

    def submit(self, parameters: dict[str, object], deadline: float) -> int:
        if not self._room.acquire(timeout=max(0.0, deadline - monotonic())):
            raise DatabaseBusy("no session was free in time")
        try:
            connection = self._begun(deadline)
            try:
                with translated(), connection.by(deadline):
                    with connection.cursor() as cursor:
                        task = _submitted(cursor, parameters)
                    commit(connection)
            finally:
                self._give_back(connection)
        finally:
            self._room.release()
        return task

    def _begun(self, deadline: float) -> Connection:
        """Return a session with a transaction open. One that was lost while nobody used it is replaced, silently."""
        while True:
            limit = statement_limit(self._settings.statement, deadline)
            try:
                connection, is_fresh = self._idle.pop(), False
            except IndexError:
                connection, is_fresh = connect(self._url, "pgtally-submit", self._settings.connect), True
                connection.patience = PATIENCE_SECONDS
            try:
                with translated(), connection.by(deadline):
                    begin(connection, limit)
            except BaseException as error:
                # Also where it led to a standby: the next one may not.
                connection.close()
                was_lost = isinstance(error, DatabaseLost) and not isinstance(error.__cause__, DeadlinePassed)
                if is_fresh or not was_lost:
                    raise
            else:
                return connection

    def _give_back(self, connection: Connection) -> None:
        if not connection.closed:
            abandon(connection)
        if not connection.closed:
            self._idle.append(connection)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Close each session as soon as nobody uses it; not in a process that was forked, which shares the sockets."""
        if self._process != os.getpid():
            for connection in self._idle:
                # The driver warns of connections that are let go while they are open, unless they are in a pool.
                connection._pool = None  # noqa: SLF001
            return
        self._is_closed = True
        atexit.unregister(self.close)
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


_SESSIONS: Final[dict[int, _Sessions]] = {}
"""By process id. Those of the process that this one was forked from are never touched, nor let go."""


def close() -> None:
    """Close the sessions of this process, each once nobody uses it. The next `submit` reads the environment again."""
    if sessions := _SESSIONS.pop(os.getpid(), None):
        sessions.close()
    settings.cache_clear()


def _submitted(cursor: psycopg.Cursor[Any], parameters: dict[str, object]) -> int:
    (task,) = cursor.execute(statement("queries/submit_task"), parameters).fetchone() or (0,)
    return int(task)

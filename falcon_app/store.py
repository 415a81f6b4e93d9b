"""The API's other calls to the database: read a task, cancel one, read the kinds, and what readiness reports.

Each is one transaction through a small pool of sessions, everything under the request's deadline. The pool opens
sessions on demand and gives up at once when it can't, so that it recovers after an outage of any length: who
retries is not the pool but `availability` and the next request.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Semaphore
from time import monotonic
from typing import Final, LiteralString, NamedTuple

from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from falcon_app.availability import Availability
from falcon_app.kinds import KindRow
from sql import statement
from sql.connect import Connection, DeadlinePassed
from sql.errors import (
    NOTIFICATIONS_FULL,
    DatabaseAway,
    DatabaseBusy,
    DatabaseLost,
    NotFound,
    OutcomeUnknown,
    RowRefused,
    translated,
)
from sql.migrate import schema_version
from sql.settings import Settings
from sql.transactions import TIDY_UP, abandon, begin, commit, session_options, statement_limit

PATIENCE: Final = timedelta(seconds=1)
"""For what the pool itself asks of a session."""


class Source(NamedTuple):
    """What a task that repeats another is made from; the input is JSON text."""

    state: str
    kind: str
    queue: str
    input: str


def _configure(connection: Connection) -> None:
    connection.patience = PATIENCE.total_seconds()


class Store:
    """What the resources ask of the database, besides admission."""

    def __init__(self, url: str, settings: Settings, availability: Availability) -> None:
        self._settings = settings
        self._availability = availability
        self._pool = ConnectionPool(
            url,
            connection_class=Connection,
            kwargs=session_options("tally-web", settings.connect),
            configure=_configure,
            min_size=0,
            max_size=settings.database_connections,
            reconnect_timeout=0.0,
            name="tally-web",
            open=False,
        )
        # A cancel waits where its row is locked; what never waits, reads and readiness, keeps sessions to itself.
        self._cancels = Semaphore(max(1, settings.database_connections // 2))
        availability.on_back = self._pool.drain

    def open(self) -> None:
        self._pool.open()

    def close(self, seconds: float) -> None:
        self._pool.close(timeout=max(0.1, seconds))

    def read(self, task: int, deadline: float) -> str:
        """Return a task's document. Raises `NotFound`, `DatabaseAway`."""
        with self._sure(deadline):
            return self._ask(statement("queries/task_by_id"), deadline, id=task)

    def cancel(self, task: int, deadline: float) -> str:
        """Cancel a task and return its document.

        Raises `NotFound`, `AlreadyTerminal`, `DatabaseAway` (nothing was changed), and `OutcomeUnknown`.
        """
        if not self._cancels.acquire(timeout=max(0.0, deadline - TIDY_UP.total_seconds() - monotonic())):
            raise DatabaseBusy("no session was free in time")
        try:
            with self._sure(deadline):
                return self._cancel(task, deadline)
        finally:
            self._cancels.release()

    def _cancel(self, task: int, deadline: float) -> str:
        try:
            return self._ask(statement("queries/cancel_task"), deadline, id=task, notify=True)
        except RowRefused as error:
            if error.sqlstate != NOTIFICATIONS_FULL:
                raise
        # The server's notification queue is full. The row counts, and the dispatcher's look-up finds it without a hint.
        return self._ask(statement("queries/cancel_task"), deadline, id=task, notify=False)

    def source(self, task: int, deadline: float) -> Source:
        """Return what a task is repeated from. Raises `NotFound`, `DatabaseAway`."""
        with self._sure(deadline):
            return Source(*self._row(statement("queries/retry_source"), deadline, id=task))

    def kinds(self, deadline: float) -> list[KindRow]:
        """Return the rows of `queries/kinds`. Raises `DatabaseAway`."""
        with self._transaction(deadline) as connection:
            return connection.execute(statement("queries/kinds")).fetchall()

    def readiness(self, deadline: float) -> str:
        """Return what the database says of the service. Raises `DatabaseAway`, also while it is read-only.

        Raises `SchemaTooNew` once the schema serves this program no more.
        """
        with self._transaction(deadline) as connection:
            schema_version(connection)
            (report,) = connection.execute(statement("queries/readiness")).fetchone() or ("",)
            return str(report)

    def _ask(self, query: LiteralString, deadline: float, **parameters: object) -> str:
        """Return the document of the task `id`. Raises `NotFound` where there is no row."""
        return str(self._row(query, deadline, **parameters)[0])

    def _row(self, query: LiteralString, deadline: float, **parameters: object) -> TupleRow:
        """Return the row about the task `id`. Raises `NotFound` where there is none."""
        with self._transaction(deadline) as connection:
            row = connection.execute(query, parameters).fetchone()
            if row is None:
                raise NotFound(f"there is no task {parameters['id']}")
            return row

    @contextmanager
    def _sure(self, deadline: float) -> Iterator[None]:
        """Let nobody be told that a task is not there by a primary that was replaced and has not noticed."""
        try:
            yield
        except NotFound:
            try:
                with self._transaction(deadline) as connection:
                    connection.execute(statement("queries/confirm"))
            except OutcomeUnknown as error:
                raise DatabaseAway(str(error)) from error
            raise

    @contextmanager
    def _transaction(self, deadline: float) -> Iterator[Connection]:
        """Open a transaction, and commit it at the end; whatever is raised inside leaves it rolled back."""
        self._availability.require()
        with self._availability.watch(), translated():
            connection = self._begun(deadline)
            try:
                with connection.by(deadline):
                    yield connection
                    commit(connection)
            finally:
                self._give_back(connection)

    def _begun(self, deadline: float) -> Connection:
        """Return a session with a transaction open.

        A session that was lost while nobody used it makes the pool renew all of them, once, without a word.
        """
        try:
            return self._begin(deadline)
        except DatabaseLost as error:
            if isinstance(error.__cause__, DeadlinePassed):
                raise
        self._pool.drain()
        return self._begin(deadline)

    def _begin(self, deadline: float) -> Connection:
        connection = self._lent(deadline)
        try:
            # Reckoned only now: the wait for a session has cost time, and a statement that outlasts the deadline
            # would be taken for a lost server.
            limit = statement_limit(self._settings.statement, deadline)
            with translated(), connection.by(deadline):
                begin(connection, limit)
        except BaseException:
            self._give_back(connection)
            raise
        return connection

    def _lent(self, deadline: float) -> Connection:
        try:
            return self._pool.getconn(timeout=max(0.01, deadline - TIDY_UP.total_seconds() - monotonic()))
        except PoolTimeout:
            # Every session is busy, or none can be opened: only a probe can tell.
            self._availability.doubt()
            raise DatabaseBusy("no session was free in time") from None
        except PoolClosed:
            raise DatabaseAway("this process is stopping") from None

    def _give_back(self, connection: Connection) -> None:
        if not connection.closed:
            abandon(connection)
        self._pool.putconn(connection)

"""Database sessions of one dispatcher: how its threads connect, and call.

Each thread has a connection of its own, named `tally:<dispatcher>:<thread>`: what a judge, or this dispatcher
after a reconnect, ends by that name. A `Caller` opens its connection when it is needed and drops it when it broke.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sql import statement
from sql.connect import Connection, confirmed, connect, require_writable
from sql.errors import READ_ONLY, DatabaseBusy, DatabaseLost, translated


@dataclass(frozen=True, slots=True)
class Database:
    """How to reach the database as one dispatcher."""

    url: str
    dispatcher: UUID
    connect_timeout: timedelta
    statement_timeout: timedelta

    def name(self, thread: str) -> str:
        return f"tally:{self.dispatcher}:{thread}"

    def connect(self, thread: str) -> Connection:
        """Open the session of a thread. Raises `DatabaseAway`, also where nothing can be written.

        An address that moves may lead to a standby for a while. Who only reads there would never notice, and stay.
        """
        connection = connect(
            self.url,
            name=self.name(thread),
            connect_timeout=self.connect_timeout,
            statement_timeout=self.statement_timeout,
        )
        try:
            require_writable(connection)
        except BaseException:
            connection.close()
            raise
        return connection


class Caller:
    """One thread's connection, opened when first needed and again after it broke."""

    def __init__(self, database: Database, thread: str) -> None:
        self.dispatcher = database.dispatcher
        self._open: Callable[[], Connection] = lambda: database.connect(thread)
        self._connection: Connection | None = None

    def ready(self) -> Connection:
        """Return a living connection. Raises `DatabaseAway`."""
        if self._connection is None or self._connection.closed:
            self._connection = self._open()
        return self._connection

    def call(self, query: str, **parameters: object) -> list[tuple[Any, ...]]:
        """Run one of `sql/queries/`, a transaction of its own, with this dispatcher's id; return its rows.

        Raises the errors of `sql.errors`; after `DatabaseLost` the effect is unknown and the connection gone.
        """
        connection = self.ready()
        try:
            with translated(), confirmed(connection):
                cursor = connection.execute(
                    statement(f"queries/{query}"), {"dispatcher": self.dispatcher, **parameters}
                )
                return cursor.fetchall()
        except DatabaseLost:
            self.close()
            raise
        except DatabaseBusy as error:
            if error.sqlstate == READ_ONLY:
                # A server that was demoted: the next connection may find the one that took over.
                connection.shun()
                self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

"""A test's own database: a clone of the migrated template."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, cast

import psycopg
from psycopg.abc import QueryNoTemplate
from psycopg_pool import ConnectionPool

from sql.connect import Connection, connect
from tests.support.server import TEMPLATE, TestServer

Params = dict[str, Any] | tuple[Any, ...] | None


class Database:
    """A database and a connection to look into it, opened at the first use and again after the server was away."""

    def __init__(self, server: TestServer, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.url(name)
        self.connections = ExitStack()
        self._own: Connection | None = None

    def connect(self, name: str = "test") -> Connection:
        """Open a connection, autocommit, that is closed when the test ends."""
        patience = timedelta(seconds=10)
        connection = connect(self.url, name=name, connect_timeout=patience, statement_timeout=patience)
        self.connections.callback(connection.close)
        return connection

    def rows(self, statement: str, params: Params = None) -> list[tuple[Any, ...]]:
        if self._own is None or not _lives(self._own):
            self._own = self.connect("test-look")
        cursor = self._own.execute(cast(QueryNoTemplate, statement), params)
        return cursor.fetchall() if cursor.description else []

    def value(self, statement: str, params: Params = None) -> Any:
        """Return the first value of the first row; None where there is no row."""
        rows = self.rows(statement, params)
        return rows[0][0] if rows else None

    def execute(self, statement: str, params: Params = None) -> None:
        self.rows(statement, params)


@contextmanager
def holding(database: Database, *statements: str) -> Iterator[int]:
    """While inside, a session named holder is in the transaction that has done this; yield its process id."""
    connection = database.connect("holder")
    connection.execute("set idle_in_transaction_session_timeout = 0")
    with connection.transaction():
        for each in statements:
            connection.execute(cast(QueryNoTemplate, each))
        yield connection.info.backend_pid


def _lives(connection: Connection) -> bool:
    try:
        ConnectionPool.check_connection(connection)
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def cloned_database(server: TestServer) -> Iterator[Database]:
    """Clone the template. The clone stays; `drop` removes it."""
    server.bring_up()
    database = Database(server, f"tally_{secrets.token_hex(4)}")
    # Twice as fast as the default, through the log, on a server that does not sync.
    strategy = "strategy file_copy" if server.major_version >= 15 else ""
    server.value(f"create database {database.name} template {TEMPLATE} {strategy}")
    with database.connections:
        yield database


def drop(database: Database) -> None:
    database.server.bring_up()
    database.server.value(f"drop database if exists {database.name} with (force)")


@contextmanager
def role_of_its_own(database: Database) -> Iterator[str]:
    """Make a role that may do all a dispatcher does; yield its name."""
    role = f"tally_{secrets.token_hex(4)}"
    database.execute(
        f"""
        create role {role} login;
        grant usage on schema tally to {role};
        grant all on all tables in schema tally to {role};
        grant usage on all sequences in schema tally to {role};
        grant execute on all functions in schema tally to {role};
        """
    )
    try:
        yield role
    finally:
        database.execute(f"drop owned by {role}; drop role {role}")

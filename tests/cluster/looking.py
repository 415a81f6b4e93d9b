"""A database of the cluster, looked into wherever it can be written just now."""

from contextlib import ExitStack
from datetime import timedelta
from time import monotonic
from typing import Any, Final

import psycopg

from sql.connect import Connection, connect
from sql.errors import DatabaseAway
from sql.migrate import migrate
from tests.support.database import Database, Params

PATIENCE: Final = timedelta(seconds=2)
LOOK_SECONDS: Final = 60


class ClusterDatabase(Database):
    """Like a database of the suite's own server, but its server may be another each time."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.connections = ExitStack()
        self._own: Connection | None = None

    def connect(self, name: str = "test") -> Connection:
        connection = connect(self.url, name=name, connect_timeout=PATIENCE, statement_timeout=PATIENCE)
        self.connections.callback(connection.close)
        return connection

    def rows(self, statement: str, params: Params = None) -> list[tuple[Any, ...]]:
        """Ask until somebody answers; only what may be asked twice."""
        end = monotonic() + LOOK_SECONDS
        while True:
            try:
                return super().rows(statement, params)
            except (psycopg.OperationalError, DatabaseAway):
                self._own = None
                if monotonic() > end:
                    raise

    def migrate(self) -> None:
        with self.connect("migrate") as connection:
            migrate(connection)

"""What the web process reads besides its requests, in transactions of their own."""

from datetime import timedelta

from falcon_app.kinds import KindRow
from sql import statement
from sql.connect import Connection
from sql.errors import translated
from sql.transactions import abandon, begin


def read_kinds(connection: Connection, limit: timedelta) -> list[KindRow]:
    """Return the rows of `queries/kinds`, read in a transaction of its own. Raises `TallyError`."""
    try:
        with translated():
            begin(connection, limit)
            return connection.execute(statement("queries/kinds")).fetchall()
    finally:
        abandon(connection)

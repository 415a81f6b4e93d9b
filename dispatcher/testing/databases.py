"""The databases of one test session: a migrated template, and a clone of it for each test.

Their names begin with a word that this session alone has, and it drops only those: what else the server holds is safe.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from psycopg.sql import SQL, Identifier

from sql import statement
from sql.connect import Connection, connect
from sql.errors import translated
from sql.migrate import migrate

PATIENCE: Final = timedelta(seconds=60)
_CONNECT: Final = timedelta(seconds=10)


def _own_word() -> str:
    return f"tally_test_{secrets.token_hex(6)}"


@dataclass(frozen=True)
class Databases:
    """Makes and drops databases on the server of a URL, whose own database is only connected to."""

    url: str
    template: str = field(default_factory=_own_word)

    def __post_init__(self) -> None:
        """Raises `ValueError` where the server is not given by a URL."""
        self.url_of(self.template)

    def url_of(self, database: str) -> str:
        """Return the URL of another database of the server."""
        named, found = re.subn(r"\A(postgres(?:ql)?://[^/?#]*)(?:/[^?#]*)?", rf"\1/{database}", self.url)
        if not found:
            raise ValueError("the server of the tests is given by a URL, postgresql://user@host:port/database")
        return named

    def make_template(self) -> None:
        """Make the template and migrate it. Raises `TallyError`."""
        self._change("create_test_database", self.template, "template0")
        with self._session(self.url_of(self.template)) as connection:
            migrate(connection)

    @contextmanager
    def clone(self) -> Iterator[str]:
        """Yield the URL of a fresh clone of the template; it is dropped afterwards, whoever is still connected."""
        name = f"{self.template}_{secrets.token_hex(4)}"
        self._change("create_test_database", name, self.template)
        try:
            yield self.url_of(name)
        finally:
            self._change("drop_test_database", name)

    def drop_all(self) -> None:
        """Drop the template and every clone that is left."""
        with self._session(self.url) as connection, translated():
            names = connection.execute(statement("queries/test_databases"), {"word": self.template}).fetchall()
        for (name,) in names:
            self._change("drop_test_database", name)

    def _change(self, query: str, database: str, template: str = "") -> None:
        change = SQL(statement(f"queries/{query}")).format(
            database=Identifier(database), template=Identifier(template or database)
        )
        with self._session(self.url) as connection, translated():
            connection.execute(change)

    def _session(self, url: str) -> Connection:
        return connect(url, name="tally-test", connect_timeout=_CONNECT, statement_timeout=PATIENCE)

"""A step's own database: every statement and its rows are written down, as psql would be given them."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import psycopg
from psycopg.abc import QueryNoTemplate
from psycopg.rows import dict_row

from evidence.journal import Journal, utc_now
from evidence.record import Row

FAULTS: Final = Path(__file__).with_name("sql")


class Database:
    """Statements to one database, a connection each, so that a server may stop and start in between."""

    def __init__(self, journal: Journal, url: str) -> None:
        self._journal = journal
        self.url = url

    def sql(self, statement: str, /, *, label: str = "", **values: Any) -> list[Row]:
        """Run a statement with `%(name)s` for each value, and return its rows; an error is written down, and raised."""
        with self.session() as session:
            return session.sql(statement, label=label, **values)

    def value(self, statement: str, /, *, label: str = "", **values: Any) -> Any:
        """Return the first value of the first row; None where there is none."""
        rows = self.sql(statement, label=label, **values)
        return next(iter(rows[0].values())) if rows else None

    @contextmanager
    def session(self, name: str = "evidence") -> Iterator["Session"]:
        """Open a connection of its own, for `begin` … `commit`, or a lock that is held meanwhile."""
        with psycopg.connect(
            self.url,
            autocommit=True,
            connect_timeout=10,
            application_name=name,
            cursor_factory=psycopg.ClientCursor,
        ) as connection:
            yield Session(self._journal, connection)

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Apply `evidence/sql/<name>.sql`, and remove it afterwards by `drop_<name>.sql`."""
        self.apply(name)
        try:
            yield
        finally:
            self.apply(f"drop_{name}")

    def apply(self, name: str) -> None:
        """Run one of the files of `evidence/sql/`."""
        self._journal.event("applied", file=f"evidence/sql/{name}.sql")
        self.sql((FAULTS / f"{name}.sql").read_text(), label=f"{name}.sql")


class Session:
    """One connection, kept."""

    def __init__(self, journal: Journal, connection: psycopg.Connection[Any]) -> None:
        self._journal = journal
        self.connection = connection

    def sql(self, statement: str, /, *, label: str = "", **values: Any) -> list[Row]:
        began, at = self._journal.now(), utc_now()
        cursor = psycopg.ClientCursor(self.connection, row_factory=dict_row)
        text = cursor.mogrify(cast(QueryNoTemplate, statement), values) if values else statement
        seen: dict[str, Any] = {"rows": [], "fault": None}
        try:
            cursor.execute(cast(QueryNoTemplate, text))
            # A row may have no columns, as in `select from …`: there is no description then, and it is a row.
            answered = cursor.pgresult and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK
            seen["rows"] = cursor.fetchall() if answered else []
        except psycopg.Error as fault:
            seen["fault"] = f"{fault.sqlstate or ''} {fault}".strip()
            raise
        finally:
            seconds = round(self._journal.now() - began, 6)
            entry = {"label": label, "statement": text, **seen, "utc": at, "began": began, "seconds": seconds}
            self._journal.line("sql.jsonl", entry)
        return cast(list[Row], seen["rows"])


def new_name() -> str:
    return f"tally_{secrets.token_hex(4)}"

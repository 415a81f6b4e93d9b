"""Applies migrations in order, one transaction each, under an advisory lock held to its end.

The lock is the first thing in each transaction, before the schema exists, so any number of these may start at
once: each applies what is then missing and finds the rest done. The functions are not migrated but replaced, all
of them, together with the last migration and whenever `migrate` finds none pending; a change that their
callers must be able to see comes with a migration of its own.
"""

import logging
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from sql import statement
from sql.connect import Connection
from sql.errors import TallyError, translated

log = logging.getLogger("tally.migrate")

OLDEST_SERVER: Final = 140000
PATIENCE_SECONDS: Final = 3600.0


class SchemaTooNew(TallyError):
    """The database was migrated by a later version of this program."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the schema is at {version}, this program knows {latest_version()}")


class UnfitServer(TallyError):
    """This server can't hold our tables."""


def latest_version() -> int:
    """Return the schema version that this program knows."""
    return _number(_migrations()[-1])


def schema_version(connection: Connection) -> int:
    """Return the version of the schema in this database, 0 where there is none. Raises `DatabaseAway`."""
    with translated():
        if not _value(connection, "queries/has_migrations"):
            return 0
        return int(_value(connection, "queries/schema_version") or 0)


def migrate(connection: Connection) -> int:
    """Bring the schema to the version this program knows, and return how many migrations that took.

    Raises `SchemaTooNew`, `UnfitServer`, `DatabaseAway`.
    """
    with translated():
        version, encoding = connection.execute(statement("queries/server")).fetchone() or (0, "")
        if version < OLDEST_SERVER:
            raise UnfitServer(f"PostgreSQL 14 or later is needed, this is {version // 10000}")
        if encoding != "UTF8":
            raise UnfitServer(f"a database with encoding UTF8 is needed, this one has {encoding}")
        connection.patience = PATIENCE_SECONDS
        applied = 0
        while _apply_next(connection):
            applied += 1
    return applied


def _apply_next(connection: Connection) -> bool:
    """Apply the next migration in one transaction; at the last one, or at none, replace the functions."""
    with connection.transaction():
        connection.execute(statement("queries/migration_settings"))
        connection.execute(statement("queries/lock_migrations"))
        current = schema_version(connection)
        if current > latest_version():
            raise SchemaTooNew(current)
        if not _value(connection, "queries/has_migrations"):
            connection.execute(statement("queries/create_migration_table"))
        pending = [migration for migration in _migrations() if _number(migration) > current]
        for migration in pending[:1]:
            connection.execute(_text(migration))
            parameters = {"version": _number(migration), "name": migration.name.removesuffix(".sql")}
            connection.execute(statement("queries/record_migration"), parameters)
            log.info("migration.applied version=%(version)d name=%(name)s", parameters)
        if len(pending) <= 1:
            _replace_functions(connection)
    return len(pending) >= 1


def _replace_functions(connection: Connection) -> None:
    for function in sorted(_directory("functions"), key=lambda file: file.name):
        connection.execute(_text(function))
    connection.execute(statement("queries/revoke_from_public"))


def _migrations() -> list[Traversable]:
    return sorted(_directory("migrations"), key=lambda file: file.name)


def _directory(name: str) -> list[Traversable]:
    return [file for file in files("sql").joinpath(name).iterdir() if file.name.endswith(".sql")]


def _number(migration: Traversable) -> int:
    return int(migration.name.partition("_")[0])


def _text(file: Traversable) -> bytes:
    return file.read_bytes()


def _value(connection: Connection, name: str) -> Any:
    row = connection.execute(statement(name)).fetchone()
    return row[0] if row else None

"""Applies migrations in order, one transaction each, under an advisory lock held to its end.

The lock is the first thing in each transaction, before the schema exists, so any number of these may start at
once: each applies what is then missing and finds the rest done. The functions are not migrated but replaced, all
of them, together with the last migration and whenever `migrate` finds none pending; a change that their
callers must be able to see comes with a migration of its own.

Traffic goes on meanwhile. Whoever asks for a lock after us waits behind us, so we wait for none longer than a fifth
of a second: then the transaction ends, which lets everything go, and after a pause comes another try. A deadlock, and
a function that somebody else has just changed, are met in the same way. So a migration changes one table: two tables
are two migrations. And it says which programs it serves: docs/upgrade.md, "A new migration".
"""

import logging
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from tenacity import RetryCallState, Retrying, retry_if_exception
from tenacity.stop import stop_after_delay
from tenacity.wait import wait_random_exponential

from sql import statement
from sql.connect import Connection
from sql.errors import LOCK_NOT_AVAILABLE, DatabaseBusy, TallyError, translated
from sql.waits import told

log = logging.getLogger("tally.migrate")

OLDEST_SERVER: Final = 140000
PATIENCE_SECONDS: Final = 3600.0
LONGEST_WAIT_MILLISECONDS: Final = 200
"""For a lock: so long does traffic wait behind a migration that does not get it."""
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 5.0
DEADLOCK: Final = "40P01"


class SchemaTooNew(TallyError):
    """The database was migrated by a later version of this program, and serves this one no more."""

    def __init__(self, version: int, oldest: int) -> None:
        super().__init__(
            f"the schema is at {version}, this program knows {latest_version()}; "
            f"it serves programs that know {oldest} or later"
        )


class UnfitServer(TallyError):
    """This server can't hold our tables."""


def latest_version() -> int:
    """Return the schema version that this program knows."""
    return _number(_migrations()[-1])


def schema_version(connection: Connection) -> int:
    """Return the version of the schema in this database, 0 where there is none.

    It may be later than this program, if it still serves it. Raises `SchemaTooNew` where not, and `DatabaseAway`.
    """
    with translated():
        if not _value(connection, "queries/has_migrations"):
            return 0
        version = int(_value(connection, "queries/schema_version") or 0)
        # A schema that is no later may not yet have the column that is asked for.
        if version > latest_version() and (oldest := _value(connection, "queries/oldest_program")) > latest_version():
            raise SchemaTooNew(version, oldest)
        return version


def migrate(connection: Connection) -> int:
    """Bring the schema to the version this program knows, and return how many migrations that took.

    A later schema that serves this program is left as it is, and so are its functions.
    Raises `SchemaTooNew`, `UnfitServer`, `DatabaseAway`; `DatabaseBusy` when a lock could not be had for an hour.
    """
    with translated():
        version, encoding = connection.execute(statement("queries/server")).fetchone() or (0, "")
        if version < OLDEST_SERVER:
            raise UnfitServer(f"PostgreSQL 14 or later is needed, this is {version // 10000}")
        if encoding != "UTF8":
            raise UnfitServer(f"a database with encoding UTF8 is needed, this one has {encoding}")
        connection.patience = PATIENCE_SECONDS
        applied = 0
        with told(connection):
            while _until_locked()(_apply_next, connection):
                applied += 1
    return applied


def _apply_next(connection: Connection) -> bool:
    """Apply the next migration in one transaction; at the last one, or at none, replace the functions.

    Raises `DatabaseBusy` when it was not alone with what it changes; then nothing was done.
    """
    with translated(), connection.transaction():
        connection.execute(statement("queries/migration_settings"))
        connection.execute(statement("queries/lock_migrations"))
        connection.execute(statement("queries/limit_lock_waits"), {"lock_timeout": f"{LONGEST_WAIT_MILLISECONDS}ms"})
        current = schema_version(connection)
        if current > latest_version():
            log.info("schema.newer version=%d known=%d", current, latest_version())
            return False
        pending = [migration for migration in _migrations() if _number(migration) > current]
        _apply(connection, pending)
    for migration in pending[:1]:
        log.info("migration.applied version=%d name=%s", _number(migration), _name(migration))
    return len(pending) >= 1


def _apply(connection: Connection, pending: list[Traversable]) -> None:
    if not _value(connection, "queries/has_migrations"):
        connection.execute(statement("queries/create_migration_table"))
    for migration in pending[:1]:
        parameters = {"version": _number(migration), "name": _name(migration)}
        connection.execute(statement("queries/record_migration"), parameters)
        connection.execute(migration.read_bytes())
    if len(pending) <= 1:
        _replace_functions(connection)


def _until_locked() -> Retrying:
    """Try until every lock was had, a quarter of a second to five apart, for an hour."""
    return Retrying(
        retry=retry_if_exception(_is_of_the_moment),
        wait=wait_random_exponential(
            multiplier=FIRST_PAUSE_SECONDS, min=FIRST_PAUSE_SECONDS, max=LONGEST_PAUSE_SECONDS
        ),
        stop=stop_after_delay(PATIENCE_SECONDS),
        before_sleep=_log_some,
        reraise=True,
    )


def _is_of_the_moment(error: BaseException) -> bool:
    """Is nothing wrong but that another session holds a lock, or has just changed the same function?"""
    return isinstance(error, DatabaseBusy) and (
        error.sqlstate in {LOCK_NOT_AVAILABLE, DEADLOCK} or str(error).startswith("tuple concurrently ")
    )


def _log_some(state: RetryCallState) -> None:
    # The first tries and then ever fewer.
    tries = state.attempt_number
    if tries & (tries - 1) == 0 and state.outcome is not None:
        log.info("migration.paused tries=%d error=%s", tries, state.outcome.exception())


def _replace_functions(connection: Connection) -> None:
    # In one round trip: what the migration has locked stays locked meanwhile.
    functions = sorted(_directory("functions"), key=lambda file: file.name)
    connection.execute(b"\n".join(function.read_bytes() for function in functions))
    connection.execute(statement("queries/revoke_from_public"))


def _migrations() -> list[Traversable]:
    return sorted(_directory("migrations"), key=lambda file: file.name)


def _directory(name: str) -> list[Traversable]:
    return [file for file in files("sql").joinpath(name).iterdir() if file.name.endswith(".sql")]


def _number(migration: Traversable) -> int:
    return int(migration.name.partition("_")[0])


def _name(migration: Traversable) -> str:
    return migration.name.removesuffix(".sql")


def _value(connection: Connection, name: str) -> Any:
    row = connection.execute(statement(name)).fetchone()
    return row[0] if row else None

"""Waits for a database whose schema this program knows: what both programs do before they say they are ready."""

import logging
from collections.abc import Callable

from sql.connect import Connection, backoff_seconds
from sql.errors import DatabaseAway
from sql.migrate import latest_version, schema_version
from sql.settings import Settings

log = logging.getLogger("tally.ready")


def await_schema(
    open_session: Callable[[], Connection], settings: Settings, is_stopped: Callable[[float], bool]
) -> bool:
    """Return True once the database is up and its schema current, False when `is_stopped` says so.

    `is_stopped(seconds)` waits, at most that long, for the word to stop. An older schema is waited for: somebody
    is migrating. A later one is as good while it serves this program; else `SchemaTooNew` is raised.
    """
    tries = 0
    said = ""
    while True:
        try:
            with open_session() as connection:
                version = schema_version(connection)
        except DatabaseAway as error:
            state = f"database.away error={error}"
        else:
            if version >= latest_version():
                if version > latest_version():
                    log.info("schema.newer version=%d known=%d", version, latest_version())
                return True
            state = f"schema.older version={version} known={latest_version()}"
        if state != said:
            log.info(state)
            said = state
        tries += 1
        if is_stopped(backoff_seconds(tries, settings.backoff)):
            return False

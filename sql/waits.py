"""Who is in the way of a migration that waits for a lock: told in the log while it waits.

The session itself hangs in its statement, so another one looks. Under load a lock passes through many hands within
a moment: only who is there at two looks is worth a line, and one line.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import Final

from psycopg.conninfo import make_conninfo

from sql import statement
from sql.connect import Connection, connect
from sql.errors import TallyError, translated

log = logging.getLogger("tally.migrate")

LOOK_SECONDS: Final = 0.1
PATIENCE: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that has, or will have before us, the lock that is waited for."""

    lock: str
    pid: int
    name: str
    role: str | None
    since: datetime | None

    def __str__(self) -> str:
        since = self.since.isoformat(timespec="seconds") if self.since else "unknown"
        return f"pid={self.pid} name={self.name!r} role={self.role} since={since} lock={self.lock!r}"


@contextmanager
def told(waiting: Connection) -> Iterator[None]:
    """While inside, tell who keeps this session waiting."""
    over = Event()
    url = make_conninfo(waiting.info.dsn, password=waiting.info.password)
    thread = Thread(target=_tell, args=(url, waiting.info.backend_pid, over), name="waits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2 * LOOK_SECONDS)


def _tell(url: str, pid: int, over: Event) -> None:
    try:
        # Most often it is over before there is anything to see.
        if not over.wait(LOOK_SECONDS):
            with connect(url, name="tally-waits", connect_timeout=PATIENCE, statement_timeout=PATIENCE) as session:
                _look(session, pid, over)
    except TallyError as error:
        log.warning("migration.unwatched error=%s", error)


def _look(session: Connection, pid: int, over: Event) -> None:
    before: set[Holder] = set()
    said: set[Holder] = set()
    while not over.wait(LOOK_SECONDS):
        with translated():
            now = {Holder(*row) for row in session.execute(statement("queries/lock_waits"), {"pid": pid})}
        if (staying := now & before) - said:
            said = staying
            log.warning("migration.waiting %s", "; ".join(sorted(map(str, staying))))
        before = now or before

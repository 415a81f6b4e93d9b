"""Is the database away? One answer for the whole process, so that requests need not each find out by waiting.

It is found away by whoever loses a connection, meets a read-only server or one that shuts down. From then on requests
are refused at once, while the admission thread probes; its first success ends that. A statement's own timeout, a
lock or a deadlock says nothing of the database and concerns one request only.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sql.errors import READ_ONLY, DatabaseAway, DatabaseLost, OutcomeUnknown, TallyError

log = logging.getLogger("tally.web")


class Availability:
    """What this process knows of the database: there, or away."""

    def __init__(self, look: Callable[[], None]) -> None:
        """`look` makes somebody probe soon, and never waits."""
        self.on_back: Callable[[], None] = lambda: None
        self._look = look
        self._away = threading.Event()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Availability {'away' if self.is_away else 'there'}>"

    @property
    def is_away(self) -> bool:
        return self._away.is_set()

    def require(self) -> None:
        """Raise `DatabaseAway` while the database is known to be away."""
        if self.is_away:
            raise DatabaseAway("the database is away")

    def doubt(self) -> None:
        """Let the database be probed, without refusing anything meanwhile."""
        self._look()

    def lost(self, reason: object) -> None:
        """The database is away: refuse what needs it until `back`."""
        with self._lock:
            if self.is_away:
                return
            self._away.set()
        log.warning("database.away reason=%s", reason)
        self._look()

    def back(self) -> None:
        """The database can be written."""
        with self._lock:
            if not self.is_away:
                return
            self.on_back()
            self._away.clear()
        log.info("database.back")

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Learn from what is raised inside whether the database is away."""
        try:
            yield
        except (DatabaseAway, OutcomeUnknown) as error:
            if means_away(error):
                self.lost(error)
            raise


def means_away(error: TallyError) -> bool:
    """Does this error concern every request, or only the one that met it?"""
    if isinstance(error, OutcomeUnknown):
        return error.sqlstate is None or error.sqlstate.startswith("57P")
    return isinstance(error, DatabaseLost) or error.sqlstate == READ_ONLY

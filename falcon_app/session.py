"""A session of one thread at a time, admission's or the bulk thread's: its connection is renewed when it is lost."""

from datetime import timedelta
from time import monotonic
from typing import Final

from sql import statement
from sql.connect import Connection, DeadlinePassed, require_writable
from sql.errors import DatabaseBusy, DatabaseLost, translated
from sql.settings import Settings
from sql.transactions import abandon, begin, connect

PATIENCE: Final = timedelta(seconds=1)
"""For opening a transaction or probing: nothing is taken yet, so a slow server is found away sooner."""


class Session:
    """Opens transactions on one connection."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self._connection: Connection | None = None

    def ready(self) -> Connection:
        """Return a connection whose server answers: it did a moment ago, or it is asked now. Raises `DatabaseAway`.

        A connection that was lost while nobody used it is replaced once, without a word.
        """
        if at_hand := self.at_hand():
            return at_hand
        is_fresh = self._connection is None
        try:
            return self._asked()
        except DatabaseLost as error:
            self.close()
            if is_fresh or isinstance(error.__cause__, DeadlinePassed):
                raise
        return self._asked()

    def at_hand(self) -> Connection | None:
        """Return a connection whose server answered a moment ago, and has not left since."""
        connection = self._connection
        return connection if connection is not None and connection.has_answered_within(PATIENCE) else None

    def _asked(self) -> Connection:
        connection = self.connected()
        with connection.by(monotonic() + PATIENCE.total_seconds()):
            require_writable(connection)
        return connection

    def begin(self, deadline: float) -> Connection:
        """Open a transaction on this connection, or on a new one when it was closed. Raises `DatabaseAway`."""
        connection = self.connected()
        with translated(), connection.by(deadline):
            abandon(connection)
            begin(connection, self._settings.statement)
        return connection

    def probe(self) -> None:
        """Raise `DatabaseAway` unless the database can be written through this connection, or a new one.

        And unless commits wait for a standby that does not confirm: each request would leave a server session waiting.
        """
        connection = self.connected()
        with translated(), connection.by(monotonic() + PATIENCE.total_seconds()):
            require_writable(connection)
            (stalls,) = connection.execute(statement("queries/replication_stalls")).fetchone() or (False,)
            connection.rollback()
        if stalls:
            connection.shun()
            raise DatabaseBusy("commits wait for a standby that does not confirm them")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connected(self) -> Connection:
        """Return this connection, or a new one when it was closed. Raises `DatabaseAway`."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url, "tally-web admission", self._settings.connect)
            self._connection.patience = PATIENCE.total_seconds()
        return self._connection

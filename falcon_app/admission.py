"""Admission: what waits together is admitted together, by one thread, in one transaction.

A request thread hands its submission over and waits for the answer. The thread makes sure that the server answers,
while nothing is taken yet, and then takes everything that waits: until then a submission may be withdrawn (503, no
row), afterwards never. It opens a transaction, calls `submit_tasks`, reads the answer, and only then sends COMMIT.
There is no artificial delay: while one batch commits the next one gathers. Batches, because a commit that notifies
holds an instance-wide lock through its flush, so that such commits run one at a time.

Where the thread has nothing to do, a request thread does the same for its own submission alone, on the same session:
that spares the two hand-overs that make up a third of an idle service's context switches. Only a COMMIT that was not
answered it hands over: to settle it a session is opened, which may outlast the request.

The server answers where it did so within the last second and has not left since; else it is asked first. One that
stops within that second costs a batch its time and not its certainty: COMMIT was never sent, so there is no row.

How a batch is written and what its failures mean is told in `batches`; by which kinds its members were checked, in
`kinds`. The same thread finds out when the database is back (see `availability`).
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from time import monotonic
from typing import Final

from falcon_app.answers import WITHDRAWAL_SECONDS, awaited
from falcon_app.availability import Availability
from falcon_app.batches import Batches
from falcon_app.kinds import Kinds, LastKinds
from falcon_app.payloads import Payload
from falcon_app.session import PATIENCE, Session
from falcon_app.settling import Settling
from falcon_app.submissions import HeldKeys, Row, Submission
from falcon_app.transactions import read_kinds
from sql.errors import DatabaseAway, OutcomeUnknown, TallyError
from sql.settings import Settings

log = logging.getLogger("tally.web")

PROBE_SECONDS: Final = 0.25
LARGEST_BATCH: Final = 1000
LARGEST_BATCH_CHARACTERS: Final = 16 * 1024 * 1024


class Word(Enum):
    """What the inbox holds besides submissions."""

    LOOK = "look"
    STOP = "stop"


class Admission:
    """The admission thread and its inbox."""

    def __init__(self, url: str, settings: Settings, on_end: Callable[[], None] = lambda: None) -> None:
        self.availability = Availability(look=lambda: self._inbox.put(Word.LOOK))
        self.kinds = LastKinds()
        self._held = HeldKeys()
        self._session = Session(url, settings)
        self._settling = Settling(self._session, settings, self.availability)
        batches = partial(Batches, self._session, settings, self.availability, self.kinds, self._held)
        self._batches = batches(self._settling.settle)
        self._alone = batches(self._hand_over)
        self._on_end = on_end
        self._inbox: SimpleQueue[Submission | Word] = SimpleQueue()
        self._waiting: deque[Submission] = deque()
        self._unsettled: deque[tuple[str, list[Submission], list[Row], OutcomeUnknown]] = deque()
        self._turns = Lock()
        """Held by whoever uses the session: the thread for its turns, or a request thread for its own submission."""
        self._doubted = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="admission", daemon=True)

    def __repr__(self) -> str:
        return f"<Admission {len(self._waiting)} waiting, database {self.availability!r}>"

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Answer what waits and end the thread. Returns whether it ended in time."""
        self._inbox.put(Word.STOP)
        self._thread.join(max(0.0, seconds))
        return not self.is_alive

    def submit(self, payload: Payload, kinds: Kinds, deadline: float, key: str | None = None) -> str:
        """Make a task, checked by these kinds, and return its document; waits, at the longest until the deadline.

        Under a key that has a task already, returns that task. Raises `UnfitInput`, `Overloaded`, `KeyReused`,
        `KeyInProgress`, `DatabaseAway` and `RowRefused`, all of them without a row of this submission, and
        `OutcomeUnknown`.
        """
        self.availability.require()
        self._held.require_free(key)
        submission = Submission(payload, deadline, key, kinds)
        if not self._admit_alone(submission):
            self._inbox.put(submission)
        return awaited(submission.answer, deadline)

    def _admit_alone(self, submission: Submission) -> bool:
        """Write a submission in its own request thread, where the admission thread has nothing to do; return whether.

        That spares two hand-overs. It is taken only where the server has answered just now, so that nothing here
        outlasts the submission's own deadline; and never before one that waits.
        """
        if not self._turns.acquire(blocking=False):
            return False
        try:
            is_next = not self._waiting and self._inbox.empty() and submission.has_time(WITHDRAWAL_SECONDS)
            if self._session.at_hand() is None or not is_next:
                return False
            submission.answer.set_running_or_notify_cancel()
            self._alone.admit([submission])
        except Exception:
            log.exception("admission.failed")
            self._session.close()
        finally:
            self._turns.release()
        return True

    def _hand_over(self, queue: str, batch: list[Submission], rows: list[Row], unknown: OutcomeUnknown) -> None:
        """Let the thread settle it, before anything else; called with the turn."""
        self._unsettled.append((queue, batch, rows, unknown))
        self._inbox.put(Word.LOOK)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._withdraw()
            self._session.close()
            self._on_end()

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        self._gather()
        with self._turns:
            self._act()

    def _act(self) -> None:
        try:
            while self._unsettled:
                self._settling.settle(*self._unsettled.popleft())
            if self.availability.is_away:
                self._withdraw()
                if not self._stopping:
                    self._probe()
                return
            if self._doubted:
                self._probe()
            if self._waiting and not self.availability.is_away:
                self._admit_waiting()
        except Exception:
            # A bug must not end admission: who was taken has been answered, and the session is not trusted again.
            log.exception("admission.failed")
            self._withdraw()
            self._session.close()

    def _probe(self) -> None:
        self._doubted = False
        try:
            self._session.probe()
        except TallyError as error:
            self._session.close()
            self.availability.lost(error)
        else:
            self._read_kinds()
            self.availability.back()

    def _read_kinds(self) -> None:
        """Read the kinds, without being asked to: they may have moved away from a queue whose lock was waited for.

        And another server, after an outage, may have others under the same revision.
        """
        with suppress(TallyError):
            connection = self._session.connected()
            with connection.by(monotonic() + PATIENCE.total_seconds()):
                self.kinds.learn(read_kinds(connection, PATIENCE))

    def _gather(self) -> None:
        """Wait until there is something, then move all of it from the inbox to the waiting."""
        patience = PROBE_SECONDS if self.availability.is_away else None
        try:
            item = self._inbox.get(block=not self._waiting, timeout=patience)
            while True:
                match item:
                    case Submission():
                        self._waiting.append(item)
                    case Word.LOOK:
                        self._doubted = True
                    case Word.STOP:
                        self._stopping = True
                item = self._inbox.get_nowait()
        except Empty:
            return

    def _withdraw(self) -> None:
        """Refuse everything that waits; none of it was taken."""
        while self._waiting:
            submission = self._waiting.popleft()
            if submission.answer.set_running_or_notify_cancel():
                submission.answer.set_exception(DatabaseAway("the database is away"))

    def _admit_waiting(self) -> None:
        try:
            self._session.ready()
        except TallyError as error:
            self._session.close()
            self.availability.lost(error)
            self._withdraw()
        else:
            self._batches.admit(self._take())

    def _take(self) -> list[Submission]:
        """Take what waits and still has time, up to the limits of a batch."""
        self._gather()
        batch: list[Submission] = []
        characters = 0
        while self._waiting and len(batch) < LARGEST_BATCH and characters < LARGEST_BATCH_CHARACTERS:
            submission = self._waiting.popleft()
            if not submission.has_time(WITHDRAWAL_SECONDS):
                submission.answer.cancel()
            if submission.answer.set_running_or_notify_cancel():
                batch.append(submission)
                characters += len(submission.payload.input)
        return batch

"""Bulk submits: the tasks of one request become rows together, in one transaction, or none of them does.

One thread decides them, a request at a time, on a session of its own: so admission has nothing to do with a thousand
tasks but to wait for the queue's lock, and no request waits beyond its deadline for a session to be opened. What an
answer means is the same as there: until a transaction is open a request may be withdrawn, afterwards never; before
COMMIT is sent everything is certain; a COMMIT whose reply is lost is settled.

How a request is written, and who is to blame where the database refuses it, is told in `bulk_writing`.
"""

from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from falcon_app.answers import awaited
from falcon_app.availability import Availability
from falcon_app.bulk_checks import TaskRefused
from falcon_app.bulk_writing import BulkWriting
from falcon_app.errors import KeyInProgress
from falcon_app.kinds import Kinds, LastKinds
from falcon_app.payloads import OneOfMany
from falcon_app.session import PATIENCE, Session
from falcon_app.submissions import HeldKeys
from sql.connect import Connection, DeadlinePassed
from sql.errors import DatabaseLost, TallyError
from sql.settings import Settings
from sql.transactions import abandon


@dataclass(frozen=True, slots=True)
class Bulk:
    """A request's tasks, the kinds they were checked by, and the future of their ids."""

    tasks: list[OneOfMany]
    kinds: Kinds
    deadline: float
    answer: "Future[list[int]]" = field(default_factory=Future)

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):
            # Else it was withdrawn, and answered so.
            self.answer.set_exception(error)


class BulkAdmission:
    """The bulk thread and its session; there are neither until something is submitted."""

    def __init__(self, url: str, settings: Settings, availability: Availability, kinds: LastKinds) -> None:
        self._availability = availability
        self._held = HeldKeys()
        self._session = Session(url, settings)
        self._writing = BulkWriting(self._session, settings, availability, kinds, self._held)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bulk")

    def stop(self) -> None:
        """Let the thread end after what it has begun; whoever still waits for it is answered by the deadline."""
        self._thread.submit(self._session.close)
        self._thread.shutdown(wait=False)

    def submit(self, tasks: list[OneOfMany], kinds: Kinds, deadline: float) -> list[int]:
        """Make a request's tasks, checked by these kinds, and return their ids, in the order given; waits.

        Under a key that has a task already, that is the task. Raises `TaskRefused`, `Overloaded`, `KeyInProgress`,
        `DatabaseAway` and `RowRefused`, all of them without a row of this request, and `OutcomeUnknown`.
        """
        self._availability.require()
        for index, task in enumerate(tasks):
            try:
                self._held.require_free(task.get("idempotency_key"))
            except KeyInProgress as error:
                raise TaskRefused(index, error) from None
        bulk = Bulk(tasks, kinds, deadline)
        self._thread.submit(self._decide, bulk)
        return awaited(bulk.answer, deadline)

    def _decide(self, bulk: Bulk) -> None:
        """In the thread: take a request once a transaction is open, unless it was withdrawn, and answer it."""
        if bulk.answer.cancelled():
            return
        try:
            connection = self._opened()
        except TallyError as error:
            self._session.close()
            # Perhaps only this session can't be opened, and single submits have theirs: a probe can tell.
            self._availability.doubt()
            bulk.fail(error)
            return
        try:
            if bulk.answer.set_running_or_notify_cancel():
                bulk.answer.set_result(self._writing.write(bulk.tasks, bulk.kinds, connection, bulk.deadline))
        except Exception as error:  # noqa: BLE001 - raised again in the request's thread
            bulk.fail(error)
        finally:
            # Left open, after a withdrawal or a bug, it would be ended by the server after 2 s.
            abandon(connection)

    def _opened(self) -> Connection:
        """Open a transaction. A session that was lost while nobody used it is replaced once, without a word."""
        self._availability.require()
        try:
            return self._session.begin(monotonic() + PATIENCE.total_seconds())
        except DatabaseLost as error:
            if isinstance(error.__cause__, DeadlinePassed):
                raise
        self._session.close()
        return self._session.begin(monotonic() + PATIENCE.total_seconds())

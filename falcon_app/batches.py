"""Batches: submissions written together, in one transaction, through admission's own session.

Before COMMIT is sent everything is certain: an error means that no member has a row. A batch that the database
refuses, or that times out, is tried again by halves, down to the one row that is to blame. A COMMIT whose
reply is lost leaves all of its members unknown.
"""

import copy
import logging
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Final
from uuid import UUID, uuid4

from falcon_app.availability import Availability, means_away
from falcon_app.errors import OutcomeUnknown, Overloaded
from falcon_app.transactions import abandon, begin, bound_statements, commit, connect, statement_limit
from sql import statement
from sql.connect import Connection, DeadlinePassed
from sql.errors import (
    DatabaseAway,
    DatabaseBusy,
    DatabaseLost,
    Misconfigured,
    NotFound,
    RowRefused,
    TallyError,
    translated,
)
from sql.settings import Settings

log = logging.getLogger("tally.web")

QUEUE: Final = "default"
ANSWER_SECONDS: Final = 0.1
"""Kept of the earliest deadline in a batch for handing the answers out."""
PATIENCE: Final = timedelta(seconds=1)
"""For opening a transaction or probing: nothing is taken yet, so a slow server is found away sooner."""
NOTIFICATIONS_FULL: Final = "54000"


@dataclass(frozen=True, slots=True)
class Submission:
    """One task to be made, and the future of its document."""

    kind: str
    input: str
    deadline: float
    token: UUID = field(default_factory=uuid4)
    answer: "Future[str]" = field(default_factory=Future)

    def has_time(self, seconds: float) -> bool:
        return self.deadline - monotonic() >= seconds


class Batches:
    """Writes batches and answers their members; one thread's."""

    def __init__(self, url: str, settings: Settings, availability: Availability) -> None:
        self._url = url
        self._settings = settings
        self._availability = availability
        self._connection: Connection | None = None

    def open(self) -> Connection:
        """Open a transaction: proof that the server answers, before anything is taken. Raises `DatabaseAway`.

        A session that was lost while nobody used it is replaced once, without a word.
        """
        fresh = self._connection is None
        try:
            return self._begin(monotonic() + PATIENCE.total_seconds())
        except DatabaseLost as error:
            self.close()
            if fresh or isinstance(error.__cause__, DeadlinePassed):
                raise
        return self._begin(monotonic() + PATIENCE.total_seconds())

    def admit(self, batch: list[Submission], connection: Connection) -> None:
        """Write a batch in the open transaction, and answer every member, whatever happens."""
        try:
            self._admit(batch, connection)
        finally:
            # Nobody who was taken is left waiting, not even by a bug.
            _fail(batch, OutcomeUnknown("admission failed", sqlstate="XX000"))

    def probe(self) -> None:
        """Find out whether the database can be written, through a fresh session if this one says no."""
        try:
            connection = self._connected()
            with translated(), connection.by(monotonic() + PATIENCE.total_seconds()):
                row = connection.execute(statement("queries/probe")).fetchone()
                connection.rollback()
            if row is None or not row[0]:
                raise DatabaseAway("the database is read-only")
        except TallyError as error:
            self.close()
            self._availability.lost(error)
        else:
            self._availability.back()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin(self, deadline: float) -> Connection:
        connection = self._connected()
        with translated(), connection.by(deadline):
            abandon(connection)
            begin(connection, self._settings.statement)
        return connection

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url, "tally-web admission", self._settings.connect)
            self._connection.patience = PATIENCE.total_seconds()
        return self._connection

    def _admit(self, batch: list[Submission], connection: Connection) -> None:
        """Write a batch in the open transaction and answer its members; by halves what the database refuses."""
        try:
            documents = self._written(batch, connection)
        except TallyError as error:
            self._recover(batch, error)
            return
        for submission, document in zip(batch, documents, strict=True):
            if document is None:
                submission.answer.set_exception(Overloaded("the queue is full"))
            else:
                submission.answer.set_result(document)

    def _written(self, batch: list[Submission], connection: Connection, *, notify: bool = True) -> list[str | None]:
        """Write and commit, and return the documents; null where the queue was full."""
        if not batch:
            abandon(connection)
            return []
        deadline = min(submission.deadline for submission in batch) - ANSWER_SECONDS
        with connection.by(deadline):
            with translated():
                if deadline - monotonic() < self._settings.statement.total_seconds() + ANSWER_SECONDS:
                    bound_statements(connection, statement_limit(self._settings.statement, deadline))
                rows = connection.execute(
                    statement("queries/submit_tasks"),
                    {
                        "queue": QUEUE,
                        "tokens": [submission.token for submission in batch],
                        "kinds": [submission.kind for submission in batch],
                        "inputs": [submission.input for submission in batch],
                        "notify": notify,
                    },
                ).fetchall()
            try:
                commit(connection)
            except RowRefused as error:
                if error.sqlstate != NOTIFICATIONS_FULL or not notify:
                    raise
                # The server's notification queue is full. The row counts, and the sweep finds it without a hint.
                with translated():
                    begin(connection, self._settings.statement)
                return self._written(batch, connection, notify=False)
        return [document for _, document in rows]

    def _recover(self, batch: list[Submission], error: TallyError) -> None:
        """Answer a batch that failed, or try it again by halves."""
        if isinstance(error, OutcomeUnknown):
            self._settle(batch, error)
        elif isinstance(error, RowRefused | DatabaseBusy) and len(batch) > 1 and not means_away(error):
            middle = len(batch) // 2
            self._admit_again(batch[:middle])
            self._admit_again(batch[middle:])
        else:
            self._refuse(batch, error)

    def _admit_again(self, batch: list[Submission]) -> None:
        """Try part of a batch in a transaction of its own, as far as time allows."""
        hurried = [submission for submission in batch if not submission.has_time(2 * ANSWER_SECONDS)]
        _fail(hurried, DatabaseBusy("no time is left to try this submission alone"))
        rest = [submission for submission in batch if not submission.answer.done()]
        if not rest:
            return
        try:
            # Never reconnects here: these were taken, and connecting may outlast their deadlines.
            self._availability.require()
            connection = self._begin(min(submission.deadline for submission in rest) - ANSWER_SECONDS)
        except TallyError as error:
            self._refuse(rest, error)
        else:
            self._admit(rest, connection)

    def _refuse(self, batch: list[Submission], error: TallyError) -> None:
        """Answer a batch of which it is certain that no member has a row."""
        if isinstance(error, NotFound):
            error = Misconfigured(str(error), sqlstate=error.sqlstate)
        if means_away(error):
            self.close()
            self._availability.lost(error)
        _fail(batch, error)

    def _settle(self, batch: list[Submission], error: OutcomeUnknown) -> None:
        """COMMIT was sent and its reply does not tell: the one place where that is resolved."""
        if means_away(error):
            self._availability.lost(error)
        self.close()
        log.warning("admission.outcome_unknown tasks=%d reason=%s", len(batch), error)
        _fail(batch, error)


def _fail(batch: list[Submission], error: TallyError) -> None:
    for submission in batch:
        if not submission.answer.done():
            # Each thread raises an exception of its own: a shared one would gather their tracebacks.
            submission.answer.set_exception(copy.copy(error))

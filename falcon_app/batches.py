"""Batches: submissions written together, in one transaction, through admission's own session.

Before COMMIT is sent everything is certain: an error means that no member has a row. A batch that the database
refuses, or that times out, is tried again by halves, down to the one row that is to blame. A COMMIT whose
reply is lost leaves all of its members unknown, until `settling` has found out.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from falcon_app.availability import Availability, means_away
from falcon_app.errors import KeyInProgress, OutcomeUnknown
from falcon_app.session import Session
from falcon_app.settling import SETTLING_SECONDS
from falcon_app.submissions import HeldKeys, Row, Submission, fail_all, without_time
from falcon_app.transactions import abandon, begin, commit, statement_limit
from sql import statement
from sql.arrays import array
from sql.connect import Connection
from sql.errors import (
    LOCK_NOT_AVAILABLE,
    NOTIFICATIONS_FULL,
    TIMED_OUT,
    DatabaseBusy,
    Misconfigured,
    NotFound,
    RowRefused,
    TallyError,
    translated,
)
from sql.settings import Settings

QUEUE: Final = "default"
ANSWER_SECONDS: Final = 0.1
"""Kept of the earliest deadline in a batch for handing the answers out."""
COMMIT_SECONDS: Final = 0.25
"""The least that is waited for the reply to COMMIT, before it is lost."""


class Manner(NamedTuple):
    """How a batch is written: the first time, or after it failed."""

    key_wait_ms: int = 100
    notify: bool = True

    def again(self) -> "Manner":
        """A key that is held has been waited for; its owner is only to be found."""
        return self._replace(key_wait_ms=1)


Settle: TypeAlias = Callable[[str, list[Submission], list[Row], OutcomeUnknown], None]
"""Answers, or lets another thread answer, a batch of a queue whose COMMIT is unknown: see `Settling.settle`."""


class Batches:
    """Writes batches and answers their members, in one transaction at a time."""

    def __init__(
        self, session: Session, settings: Settings, availability: Availability, held: HeldKeys, settle: Settle
    ) -> None:
        self._session = session
        self._settings = settings
        self._availability = availability
        self._held = held
        self._settle = settle

    def admit(self, batch: list[Submission], connection: Connection) -> None:
        """Write a batch, in a transaction of its own, and answer every member, whatever happens."""
        try:
            self._admit(batch, connection, Manner())
        except Exception:
            # Nobody who was taken is left waiting, not even by a bug.
            fail_all(batch, OutcomeUnknown("admission failed", sqlstate="XX000"))
            raise

    def _admit(self, batch: list[Submission], connection: Connection, manner: Manner) -> None:
        """Write a batch and answer its members; by halves what the database refuses."""
        if not batch:
            return
        deadline = min(submission.deadline for submission in batch) - ANSWER_SECONDS
        try:
            rows = self._written(batch, connection, deadline, manner)
        except TallyError as error:
            # Left open it would be taken for an outage by the next probe, and ended by the server after 2 s.
            with connection.by(deadline):
                abandon(connection)
            self._recover(batch, error, manner)
            return
        try:
            with connection.by(min(deadline, max(monotonic() + COMMIT_SECONDS, deadline - SETTLING_SECONDS))):
                commit(connection)
        except OutcomeUnknown as error:
            self._settle(QUEUE, batch, rows, error)
        except TallyError as error:
            if error.sqlstate == NOTIFICATIONS_FULL and manner.notify:
                # The server's notification queue is full. The row counts, and the sweep finds it without a hint.
                self._admit_again(batch, manner._replace(notify=False))
            else:
                self._recover(batch, error, manner)
        else:
            for submission, row in zip(batch, rows, strict=True):
                row.answer(submission)

    def _written(self, batch: list[Submission], connection: Connection, deadline: float, manner: Manner) -> list[Row]:
        """Write, and return a row for each member, not committed yet."""
        with connection.by(deadline), translated():
            begin(connection, statement_limit(self._settings.statement, deadline))
            rows = connection.execute(
                statement("queries/submit_tasks"),
                {
                    "queue": QUEUE,
                    "tokens": array(str(submission.token) for submission in batch),
                    "kinds": array(submission.kind for submission in batch),
                    "inputs": array(submission.input for submission in batch),
                    "keys": array(submission.key for submission in batch),
                    "key_wait_ms": manner.key_wait_ms,
                    "notify": manner.notify,
                },
            ).fetchall()
        return [Row(*row) for row in rows]

    def _recover(self, batch: list[Submission], error: TallyError, manner: Manner) -> None:
        """Answer a batch of which it is certain that no member has a row, or try it again by halves."""
        # Misconfigured too: a policy, or a trigger that fails on some rows only, speaks in the same class of codes.
        of_a_row = isinstance(error, RowRefused | DatabaseBusy | Misconfigured) and not means_away(error)
        if of_a_row and len(batch) > 1:
            middle = len(batch) // 2
            self._admit_again(batch[:middle], manner.again())
            self._admit_again(batch[middle:], manner.again())
        else:
            self._refuse(batch, error)

    def _admit_again(self, batch: list[Submission], manner: Manner) -> None:
        """Try a batch, or part of one, in a transaction of its own, as far as time allows."""
        rest = without_time(batch, 2 * ANSWER_SECONDS)
        if not rest:
            return
        try:
            # Never reconnects here: these were taken, and connecting may outlast their deadlines.
            self._availability.require()
            connection = self._session.connected()
        except TallyError as error:
            self._refuse(rest, error)
        else:
            self._admit(rest, connection, manner)

    def _refuse(self, batch: list[Submission], error: TallyError) -> None:
        """Answer a batch without a row."""
        if isinstance(error, NotFound):
            error = Misconfigured(str(error), sqlstate=error.sqlstate)
        if means_away(error):
            self._session.close()
            self._availability.lost(error)
        if error.sqlstate == TIMED_OUT:
            # Perhaps behind a commit that no standby confirms: then nobody gets further here.
            self._availability.doubt()
        if error.sqlstate == LOCK_NOT_AVAILABLE and len(batch) == 1 and (key := batch[0].key) is not None:
            self._held.remember(key)
            error = KeyInProgress("the key is held by an open transaction")
        fail_all(batch, error)

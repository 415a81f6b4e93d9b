"""Batches: submissions of one queue written together, in one transaction, through admission's own session.

Before COMMIT is sent everything is certain: an error means that no member has a row. A batch that the database
refuses, or that times out, is tried again by halves, down to the one row that is to blame. A COMMIT whose
reply is lost leaves all of its members unknown, until `settling` has found out. A transaction that saw other kinds than
its members were checked by is not committed: they are checked again, and may then go to several queues.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from falcon_app.availability import Availability, means_away
from falcon_app.errors import KeyInProgress, UnfitInput
from falcon_app.kinds import Kinds, LastKinds
from falcon_app.session import Session
from falcon_app.settling import SETTLING_SECONDS
from falcon_app.submissions import HeldKeys, Row, Submission, fail_all, without_time
from falcon_app.transactions import read_kinds
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
    OutcomeUnknown,
    RowRefused,
    TallyError,
    translated,
)
from sql.settings import Settings
from sql.transactions import abandon, begin, commit, statement_limit

ANSWER_SECONDS: Final = 0.1
"""Kept of the earliest deadline in a batch for handing the answers out."""
COMMIT_SECONDS: Final = 0.25
"""The least that is waited for the reply to COMMIT, before it is lost."""
MOST_READINGS: Final = 5
"""Of the kinds, for one batch: each means that somebody published again in these few milliseconds."""


class Manner(NamedTuple):
    """How a batch is written: to which queue, checked by which kinds; the first time, or after it failed."""

    queue: str
    kinds: Kinds
    key_wait_ms: int = 100
    notify: bool = True
    readings: int = 0

    def again(self) -> "Manner":
        """A key that is held has been waited for; its owner is only to be found."""
        return self._replace(key_wait_ms=1)


Settle: TypeAlias = Callable[[str, list[Submission], list[Row], OutcomeUnknown], None]
"""Answers, or lets another thread answer, a batch of a queue whose COMMIT is unknown: see `Settling.settle`."""


class Batches:
    """Writes batches and answers their members, in one transaction at a time."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        availability: Availability,
        kinds: LastKinds,
        held: HeldKeys,
        settle: Settle,
    ) -> None:
        self._session = session
        self._settings = settings
        self._availability = availability
        self._kinds = kinds
        self._held = held
        self._settle = settle

    def admit(self, batch: list[Submission]) -> None:
        """Write what was taken, each queue's in a transaction of its own, and answer every member, whatever happens."""
        try:
            alike: dict[tuple[str, Kinds], list[Submission]] = {}
            for submission in batch:
                kinds = submission.kinds
                alike.setdefault((submission.queue(kinds), kinds), []).append(submission)
            for (queue, kinds), part in alike.items():
                manner = Manner(queue, kinds)
                last = self._kinds.last
                if last.revision > kinds.revision:
                    # Read by another while these waited.
                    self._admit_what_fits(part, manner._replace(kinds=last))
                else:
                    self._admit_in_time(part, manner)
        except Exception:
            # Nobody who was taken is left waiting, not even by a bug.
            fail_all(batch, OutcomeUnknown("admission failed", sqlstate="XX000"))
            raise

    def _admit_in_time(self, batch: list[Submission], manner: Manner) -> None:
        """Write a batch, or part of one, in a transaction of its own, as far as time allows."""
        rest = without_time(batch, 2 * ANSWER_SECONDS)
        if not rest:
            return
        try:
            # Connects only where another queue's COMMIT was not settled: these were taken, and it may outlast them.
            self._availability.require()
            connection = self._session.connected()
        except TallyError as error:
            self._refuse(rest, error)
        else:
            self._admit(rest, connection, manner)

    def _admit(self, batch: list[Submission], connection: Connection, manner: Manner) -> None:
        """Write a batch and answer its members; by halves what the database refuses."""
        deadline = min(submission.deadline for submission in batch) - ANSWER_SECONDS
        try:
            rows = self._written(batch, connection, deadline, manner)
        except TallyError as error:
            # Left open it would be taken for an outage by the next probe, and ended by the server after 2 s.
            with connection.by(deadline):
                abandon(connection)
            if isinstance(error, NotFound) and not manner.readings:
                # Perhaps their kinds have moved to another queue since they were read.
                self._check_again(batch, connection, deadline, manner)
            else:
                self._recover(batch, error, manner)
            return
        if rows[0].revision != manner.kinds.revision:
            self._check_again(batch, connection, deadline, manner)
            return
        try:
            with connection.by(min(deadline, max(monotonic() + COMMIT_SECONDS, deadline - SETTLING_SECONDS))):
                commit(connection)
        except OutcomeUnknown as error:
            self._settle(manner.queue, batch, rows, error)
        except TallyError as error:
            if error.sqlstate == NOTIFICATIONS_FULL and manner.notify:
                # The server's notification queue is full. The row counts, and the sweep finds it without a hint.
                self._admit_in_time(batch, manner._replace(notify=False))
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
                    "queue": manner.queue,
                    "tokens": array(str(submission.token) for submission in batch),
                    "kinds": array(submission.payload.kind for submission in batch),
                    "inputs": array(submission.payload.input for submission in batch),
                    "keys": array(submission.key for submission in batch),
                    "retry_of": _retried(batch),
                    "key_wait_ms": manner.key_wait_ms,
                    "notify": manner.notify,
                },
            ).fetchall()
        return [Row(*row) for row in rows]

    def _check_again(self, batch: list[Submission], connection: Connection, deadline: float, manner: Manner) -> None:
        """Leave the transaction, which saw other kinds than its members were checked by, and admit them by those."""
        try:
            with connection.by(deadline):
                abandon(connection)
                if manner.readings == MOST_READINGS:
                    raise DatabaseBusy("the kinds were published again and again")
                kinds = self._kinds.learn(read_kinds(connection, statement_limit(self._settings.statement, deadline)))
        except TallyError as error:
            self._refuse(batch, error)
        else:
            self._admit_what_fits(batch, manner._replace(kinds=kinds, readings=manner.readings + 1))

    def _admit_what_fits(self, batch: list[Submission], manner: Manner) -> None:
        """Check a batch by the kinds of this manner, and write those that fit, whatever queues they now go to."""
        queues: dict[str, list[Submission]] = {}
        for submission in batch:
            try:
                manner.kinds.check(submission.payload.kind, submission.payload.value)
            except UnfitInput as error:
                submission.fail(error)
            else:
                queues.setdefault(submission.queue(manner.kinds), []).append(submission)
        for queue, part in queues.items():
            self._admit_in_time(part, manner._replace(queue=queue))

    def _recover(self, batch: list[Submission], error: TallyError, manner: Manner) -> None:
        """Answer a batch of which it is certain that no member has a row, or try it again by halves."""
        # Misconfigured too: a policy, or a trigger that fails on some rows only, speaks in the same class of codes.
        of_a_row = isinstance(error, RowRefused | DatabaseBusy | Misconfigured) and not means_away(error)
        if of_a_row and len(batch) > 1:
            middle = len(batch) // 2
            self._admit_in_time(batch[:middle], manner.again())
            self._admit_in_time(batch[middle:], manner.again())
        else:
            self._refuse(batch, error)

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


def _retried(batch: list[Submission]) -> str | None:
    """Return the tasks that the members repeat as an array; None where none of them does, as is usual."""
    tasks = [submission.payload.retry_of for submission in batch]
    return array(None if task is None else str(task) for task in tasks) if any(tasks) else None

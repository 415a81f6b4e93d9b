"""A bulk request's one transaction: all of its tasks are written, or nothing is.

All of them go to one queue, whose lock orders them. A transaction that saw other kinds than they were checked by is
rolled back, and they are checked again, as in `batches`.

A key that has a task already needs no room, as always; one whose task has another body refuses the request, like a row
that the database refuses. Such a row is looked for by trying halves, each in a transaction that is rolled back: ten for
a thousand tasks, as far as time allows. Where no task is refused alone, the request is refused without naming one.
"""

from time import monotonic
from typing import NamedTuple
from uuid import UUID

from falcon_app.availability import Availability, means_away
from falcon_app.batches import ANSWER_SECONDS, COMMIT_SECONDS, MOST_READINGS, Manner
from falcon_app.bulk_checks import TaskRefused, checked
from falcon_app.errors import KeyInProgress, KeyReused, Overloaded
from falcon_app.kinds import Kinds, LastKinds
from falcon_app.payloads import OneOfMany, Payload, tasks_text
from falcon_app.session import Session
from falcon_app.settling import SETTLING_SECONDS, Settling
from falcon_app.submissions import HeldKeys, Row, Submission
from falcon_app.transactions import read_kinds
from sql import statement
from sql.connect import Connection
from sql.errors import (
    LOCK_NOT_AVAILABLE,
    NOTIFICATIONS_FULL,
    TIMED_OUT,
    DatabaseAway,
    DatabaseBusy,
    Misconfigured,
    NotFound,
    OutcomeUnknown,
    RowRefused,
    TallyError,
    translated,
)
from sql.settings import Settings
from sql.transactions import abandon, bound_statements, commit, statement_limit


class Written(NamedTuple):
    """A row of `submit_batch`: the verdict on a task, and its row, unless the queue is full; is it this request's?

    With the revision of the kinds, as the transaction saw them.
    """

    verdict: str
    id: int
    token: str
    is_new: bool
    revision: int


class BulkWriting:
    """Writes requests, and finds who is to blame; one thread's."""

    def __init__(
        self, session: Session, settings: Settings, availability: Availability, kinds: LastKinds, held: HeldKeys
    ) -> None:
        self._session = session
        self._settings = settings
        self._availability = availability
        self._kinds = kinds
        self._held = held
        self._settling = Settling(session, settings, availability)

    def write(self, tasks: list[OneOfMany], kinds: Kinds, connection: Connection, deadline: float) -> list[int]:
        """Write tasks, checked by these kinds, in the open transaction, commit it, and return their ids.

        Raises what `BulkAdmission.submit` does.
        """
        decided_by = deadline - ANSWER_SECONDS
        try:
            return self._write(tasks, connection, decided_by, Manner(kinds.queue(tasks[0]["kind"]), kinds))
        except OutcomeUnknown:
            raise
        except NotFound as error:
            raise Misconfigured(str(error), sqlstate=error.sqlstate) from error
        except TallyError as error:
            abandon(connection)
            self._learn(error)
            if _is_of_a_task(error):
                self._blame(tasks, decided_by)
            raise

    def _write(self, tasks: list[OneOfMany], connection: Connection, deadline: float, manner: Manner) -> list[int]:
        try:
            rows = self._written(tasks, connection, deadline, manner)
        except NotFound:
            if manner.readings:
                raise
            # Perhaps their kinds have moved to another queue since they were read.
            return self._write_checked_again(tasks, connection, deadline, manner)
        if rows[0].revision != manner.kinds.revision:
            return self._write_checked_again(tasks, connection, deadline, manner)
        self._require_all(rows, connection, deadline)
        try:
            with connection.by(min(deadline, max(monotonic() + COMMIT_SECONDS, deadline - SETTLING_SECONDS))):
                commit(connection)
        except OutcomeUnknown as unknown:
            self._settle(manner.queue, tasks, rows, deadline + ANSWER_SECONDS, unknown)
        except RowRefused as error:
            if error.sqlstate != NOTIFICATIONS_FULL or not manner.notify:
                raise
            # The server's notification queue is full. The rows count, and the sweep finds them without a hint.
            return self._write(tasks, self._session.begin(deadline), deadline, manner._replace(notify=False))
        return [row.id for row in rows]

    def _write_checked_again(
        self, tasks: list[OneOfMany], connection: Connection, deadline: float, manner: Manner
    ) -> list[int]:
        """Leave the transaction, which saw other kinds, and write the tasks in another one if they fit those."""
        with connection.by(deadline):
            abandon(connection)
            if manner.readings == MOST_READINGS:
                raise DatabaseBusy("the kinds were published again and again")
            kinds = self._kinds.learn(read_kinds(connection, statement_limit(self._settings.statement, deadline)))
        anew = manner._replace(queue=checked(tasks, kinds), kinds=kinds, readings=manner.readings + 1)
        return self._write(tasks, self._session.begin(deadline), deadline, anew)

    def _written(
        self, tasks: list[OneOfMany], connection: Connection, deadline: float, manner: Manner
    ) -> list[Written]:
        """Write, and return a row for each task, not committed yet."""
        with connection.by(deadline), translated():
            limit = statement_limit(self._settings.statement, deadline)
            if limit < self._settings.statement:
                bound_statements(connection, limit)
            rows = connection.execute(
                statement("queries/submit_batch"),
                {
                    "queue": manner.queue,
                    "tasks": tasks_text(tasks),
                    "key_wait_ms": manner.key_wait_ms,
                    "notify": manner.notify,
                },
            ).fetchall()
        return [Written(*row) for row in rows]

    def _require_all(self, rows: list[Written], connection: Connection, deadline: float) -> None:
        """Raise `TaskRefused` or `Overloaded`, with nothing written, unless each task has a row of its own body."""
        verdicts = [row.verdict for row in rows]
        if "key reused" in verdicts:
            index = verdicts.index("key reused")
            abandon(connection)
            self._confirm(deadline)
            reused = KeyReused(f"task {rows[index].id} was submitted under this key with another body")
            raise TaskRefused(index, reused)
        if "overloaded" in verdicts:
            abandon(connection)
            raise Overloaded("the queue is full")

    def _confirm(self, deadline: float) -> None:
        """Let nobody be told of a task by a primary that was replaced and has not noticed."""
        connection = self._session.begin(deadline)
        with connection.by(deadline), translated():
            connection.execute(statement("queries/confirm"))
            try:
                commit(connection)
            except OutcomeUnknown as error:
                raise DatabaseAway(str(error)) from error

    def _settle(
        self, queue: str, tasks: list[OneOfMany], rows: list[Written], deadline: float, unknown: OutcomeUnknown
    ) -> None:
        """Find out what became of a COMMIT. Raises `DatabaseAway` where it was not done, and `OutcomeUnknown`.

        Its new rows tell, which have one fate; one that was there before may be gone by now for reasons of its own.
        """
        batch = [Submission(Payload(task["kind"], "", task["input"]), deadline) for task in tasks]
        self._settling.settle(queue, batch, [Row(row.verdict, row.id, UUID(row.token), "") for row in rows], unknown)
        new = [submission for submission, row in zip(batch, rows, strict=True) if row.is_new]
        for submission in new or batch:
            submission.answer.result(0)

    def _learn(self, error: TallyError) -> None:
        """Learn from an error what concerns more than this request."""
        if means_away(error):
            self._session.close()
            self._availability.lost(error)
        if error.sqlstate == TIMED_OUT:
            # Perhaps behind a commit that no standby confirms: then nobody gets further here.
            self._availability.doubt()

    def _blame(self, tasks: list[OneOfMany], deadline: float) -> None:
        """Look for the task that the database refuses. Raises `TaskRefused` when it is found."""
        kinds = self._kinds.last
        # A key that is held has been waited for; its owner is only to be found.
        trial = Manner(kinds.queue(tasks[0]["kind"]), kinds, key_wait_ms=1, notify=False)
        first, end = 0, len(tasks)
        try:
            while end - first > 1:
                middle = (first + end) // 2
                if self._refusal(tasks[first:middle], deadline, trial):
                    end = middle
                else:
                    first = middle
            refusal = self._refusal(tasks[first:end], deadline, trial)
        except TallyError as error:
            self._learn(error)
            return
        key = tasks[first].get("idempotency_key")
        if refusal is not None and refusal.sqlstate == LOCK_NOT_AVAILABLE and key is not None:
            self._held.remember(key)
            refusal = KeyInProgress("the key is held by an open transaction")
        if refusal is not None:
            raise TaskRefused(first, refusal)

    def _refusal(self, tasks: list[OneOfMany], deadline: float, trial: Manner) -> TallyError | None:
        """Return what the database says against these tasks, which it is only asked."""
        connection = self._session.begin(deadline)
        try:
            self._written(tasks, connection, deadline, trial)
            with connection.by(deadline), translated():
                connection.execute(statement("queries/constraints_now"))
        except TallyError as error:
            if _is_of_a_task(error):
                return error
            raise
        finally:
            abandon(connection)
        return None


def _is_of_a_task(error: TallyError) -> bool:
    return isinstance(error, RowRefused) or error.sqlstate == LOCK_NOT_AVAILABLE

"""A COMMIT whose reply was lost, or does not tell: what became of the batch is asked of the database.

Over a fresh connection, by `settle_submissions`: it waits for the lock that the first transaction holds until its
end, and looks for the ids with their tokens. What is there is answered 202, what is not 503. It is asked again while
the submissions have time; after that they are unknown, 504, and the client asks again under the same key.
"""

import logging
from time import monotonic, sleep
from typing import Final

from falcon_app.availability import Availability, means_away
from falcon_app.session import Session
from falcon_app.submissions import Row, Submission, fail_all
from sql import statement
from sql.connect import backoff_seconds
from sql.errors import DatabaseAway, OutcomeUnknown, TallyError, translated
from sql.settings import Settings
from sql.transactions import bound_statements, commit, statement_limit

log = logging.getLogger("tally.web")

SETTLING_SECONDS: Final = 0.5
"""Kept of the earliest deadline in a batch for settling it; and the least there is, for a process that was frozen."""


class Settling:
    """Answers batches whose COMMIT is unknown; the admission thread's."""

    def __init__(self, session: Session, settings: Settings, availability: Availability) -> None:
        self._session = session
        self._settings = settings
        self._availability = availability

    def settle(self, queue: str, batch: list[Submission], rows: list[Row], unknown: OutcomeUnknown) -> None:
        """Answer every member of a batch, at the latest by the last deadline; request threads watch their own."""
        log.warning("admission.outcome_unknown tasks=%d reason=%s", len(batch), unknown)
        last = max(monotonic() + SETTLING_SECONDS, *(submission.deadline for submission in batch))
        failures = 0
        while True:
            self._session.close()
            try:
                made = self._made(queue, rows, last)
            except TallyError as error:
                if means_away(error):
                    self._availability.lost(error)
                pause = backoff_seconds(failures, self._settings.backoff)
                failures += 1
                if monotonic() + pause >= last:
                    # It may be within a transaction that failed.
                    self._session.close()
                    fail_all(batch, unknown)
                    return
                sleep(pause)
            else:
                self._availability.back()
                break
        log.info("admission.settled tasks=%d made=%d", len(batch), len(made))
        for submission, row in zip(batch, rows, strict=True):
            if row.id is None or row.id in made:
                row.answer(submission)
            else:
                submission.fail(DatabaseAway("the transaction was not committed"))

    def _made(self, queue: str, rows: list[Row], deadline: float) -> set[int]:
        """Return the ids of these rows that are there. Raises `TallyError` when it could not be found out."""
        tasks = [row for row in rows if row.id is not None]
        connection = self._session.begin(deadline)
        with connection.by(deadline):
            with translated():
                bound_statements(connection, statement_limit(self._settings.statement, deadline))
                found = connection.execute(
                    statement("queries/settle_submissions"),
                    {"queue": queue, "ids": [row.id for row in tasks], "tokens": [row.token for row in tasks]},
                ).fetchall()
            commit(connection)
        return {task for (task,) in found}

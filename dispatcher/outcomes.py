"""The terminal write, tried until acknowledged, found late, or told to give up.

What a body ended in goes to the first of two lanes, a task that could not be claimed to the second
(see `dispatcher.lanes`), a thread each. What is acknowledged frees its slot.
"""

import logging
from collections.abc import Callable
from threading import Event
from typing import Final

from dispatcher.lanes import Acknowledge, FirstLane, SecondLane
from dispatcher.messages import Refusal, Report, Verdict
from dispatcher.sessions import Caller
from sql.states import TaskState

log = logging.getLogger("tally.outcomes")


class Outcomes:
    """Both lanes. `acknowledge` is called on their threads."""

    def __init__(self, first: Caller, second: Caller, acknowledge: Acknowledge, turn: Callable[[], None]) -> None:
        self.give_up: Final = Event()
        self.drop_refusals: Final = Event()
        """Set when stopping: a task that was never claimed may stay QUEUED, its failure unwritten."""
        self._second = SecondLane(second, acknowledge, self.give_up, self.drop_refusals)
        self._first = FirstLane(first, acknowledge, self._second.put, self.give_up, turn)

    @property
    def lanes(self) -> tuple["FirstLane", "SecondLane"]:
        return self._first, self._second

    @property
    def trouble(self) -> str | None:
        """What is to be said of outcomes that are tried again and again."""
        stuck = self._second.pending
        return f"{stuck} outcomes cannot be written yet" if stuck else None

    def put(self, report: Report) -> None:
        if isinstance(report, Refusal):
            self._second.put(report)
        else:
            self._first.put(report)


def tell(report: Report, verdict: Verdict) -> None:
    """Say what became of a task, one line for the whole story of an attempt."""
    if isinstance(report, Refusal):
        log.warning("task.refused task=%d verdict=%s detail=%s", report.id, verdict, report.detail)
    elif verdict is Verdict.LATE:
        log.warning(
            "task.late task=%d attempt=%d state=%s ending=%s",
            report.id,
            report.claim.attempt,
            report.state,
            report.ending,
        )
    elif report.state is TaskState.QUEUED:
        log.info(
            "task.retried task=%d attempt=%d kind=%s ending=%s verdict=%s seconds=%s error=%s",
            report.id,
            report.claim.attempt,
            report.claim.kind,
            report.ending,
            verdict,
            "?" if report.after_seconds is None else f"{report.after_seconds:.3f}",
            report.error,
        )
    else:
        level = logging.DEBUG if report.state is TaskState.SUCCEEDED else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level,
                "task.finished task=%d attempt=%d kind=%s state=%s ending=%s verdict=%s error=%s",
                report.id,
                report.claim.attempt,
                report.claim.kind,
                report.state,
                report.ending,
                verdict,
                report.error,
            )

"""What the lanes write: what tasks ended in, which of them are to be attempted again, and which could not be claimed.

A try may have been committed without its reply having been heard, so each can be written again: the verdict then is
"yours already". What asks for another attempt is an outcome of state QUEUED, and it is the database that decides: where
no attempt is left, or a cancel was accepted, the task ends.
"""

import json
from typing import Final, TypeAlias

from dispatcher.messages import Ending, Outcome, Refusal, Verdict
from dispatcher.sessions import Caller
from sql.arrays import array, numbers
from sql.errors import AlreadyTerminal, ClaimedAfterAll, Condemned, NotFound
from sql.states import TaskState

LOCKED: Final = "locked"

Written: TypeAlias = tuple[Outcome, str]
"""An outcome, as it is in the row where it is, and the database's verdict: one of `messages.VERDICTS`, or `LOCKED`."""


def write(caller: Caller, batch: list[Outcome]) -> list[Written]:
    """Write outcomes, in one call where none of them asks for another attempt."""
    again = [outcome for outcome in batch if outcome.state is TaskState.QUEUED]
    if not again:
        return finish(caller, batch)
    ended = [outcome for outcome in batch if outcome.state is not TaskState.QUEUED]
    written = finish(caller, ended) if ended else []
    while again:
        # Where a reply was lost, one that is asked for once more may stand beside the next attempt of its task.
        one_each = {outcome.id: outcome for outcome in again}
        written += retry(caller, list(one_each.values()))
        again = [outcome for outcome in again if one_each[outcome.id] is not outcome]
    return written


def finish(caller: Caller, batch: list[Outcome]) -> list[Written]:
    """Write what tasks ended in, in one call."""
    rows = caller.call(
        "finish_tasks",
        ids=numbers([outcome.claim.id for outcome in batch]),
        attempts=numbers([outcome.claim.attempt for outcome in batch]),
        states=array([outcome.state for outcome in batch]),
        results=array([outcome.result for outcome in batch]),
        errors=array([outcome.error for outcome in batch]),
        endings=array([outcome.ending for outcome in batch]),
    )
    verdicts: dict[int, str] = dict(rows)
    return [(outcome, verdicts[outcome.claim.id]) for outcome in batch]


def retry(caller: Caller, batch: list[Outcome]) -> list[Written]:
    """Ask for another attempt of each of these tasks, in one call; each task is among them once.

    What was written is returned with the state that its task is in then, and the seconds until it is due.
    """
    delays = [outcome.after_seconds for outcome in batch]
    rows = caller.call(
        "retry_tasks",
        ids=numbers([outcome.id for outcome in batch]),
        attempts=numbers([outcome.claim.attempt for outcome in batch]),
        errors=array([outcome.error for outcome in batch]),
        endings=array([outcome.ending for outcome in batch]),
        delays=array([None if seconds is None else repr(seconds) for seconds in delays]),
    )
    asked = {outcome.id: outcome for outcome in batch}
    return [
        (asked[task]._replace(state=TaskState(state), after_seconds=due) if state else asked[task], verdict)
        for task, verdict, state, due in rows
    ]


def refuse(caller: Caller, refusal: Refusal) -> Verdict:
    """Write that a task could not be claimed, while it is still QUEUED."""
    try:
        caller.call("refuse_claim", id=refusal.id, detail=refusal.detail, attempt=refusal.attempt)
    except (NotFound, AlreadyTerminal, ClaimedAfterAll):
        return Verdict.LATE
    except Condemned:
        return Verdict.DROPPED
    return Verdict.WRITTEN


def unstorable(outcome: Outcome) -> Outcome:
    """Return the outcome of a body whose result this server does not take as jsonb."""
    error = json.dumps({"reason": "result cannot be stored", "detail": "the database does not take it as jsonb"})
    return Outcome(outcome.claim, TaskState.FAILED, None, error, Ending.RETURNED)

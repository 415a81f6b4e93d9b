"""Runs one body and says how it ended. Whatever a body does, this returns an outcome and the slot lives on.

An attempt that ended badly may be followed by another, where one is left: that is the outcome QUEUED. A body that
raised may be repeated as its kind's `retry_on` and `fail_on` say, and so may one whose time limit passed; one whose
process died, only with `on_crash="retry"`. What cannot go better next time is FAILED at once.
"""

import json
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dispatcher.context import Cancel, Context
from dispatcher.failures import Canceled, Failed, Retry, TimeLimitPassed, message
from dispatcher.inputs import BadInput
from dispatcher.kinds import Task
from dispatcher.messages import Claim, Ending, Outcome
from sql.documents import BrokenRule, encode, storable_text
from sql.states import TaskState

log = logging.getLogger("tally.body")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a result and an error's texts may take."""

    max_depth: int
    max_result_bytes: int
    max_detail_bytes: int


def run_body(claim: Claim, cancel: Cancel, kinds: Mapping[str, Task], limits: Limits) -> Outcome:
    """Run the body of a claim to its end, unless it was told to stop before it began."""
    if cancel.is_set():
        return failed(claim, "canceled before it began", None, limits, Ending.NOT_STARTED)
    task = kinds.get(claim.kind)
    if task is None:
        return failed(claim, f"no such kind: {claim.kind}", None, limits, Ending.NOT_STARTED)
    try:
        given = task.read(claim.input)
    except BadInput as error:
        return failed(claim, "input does not fit its kind", str(error), limits, Ending.NOT_STARTED)
    except ValueError as error:
        return failed(claim, "input cannot be read", str(error), limits, Ending.NOT_STARTED)
    except BaseException as error:  # noqa: BLE001 - a type's own code runs while it is made of an input
        return raised(claim, error, cancel, limits)
    try:
        result = task.run(given, Context(claim.id, claim.attempt, cancel))
    except BaseException as error:  # noqa: BLE001 - the edge where whatever a body raises becomes an outcome
        return raised(claim, error, cancel, limits, task)
    if cancel.timed_out:
        return out_of_time(claim, task, Ending.RETURNED, limits)
    return _returned(claim, result if task.options.keep_result else None, limits)


def raised(claim: Claim, error: BaseException, cancel: Cancel, limits: Limits, task: Task | None = None) -> Outcome:
    """Return the outcome of a body that raised, or at whose thread something was thrown before it was heard.

    Without its kind, no other attempt follows.
    """
    try:
        return _raised(claim, task, error, cancel, limits)
    except BaseException:  # noqa: BLE001 - even the class of what a body raised is its own code
        log.error("body.unreadable task=%d attempt=%d", claim.id, claim.attempt)  # noqa: TRY400 - the same
        return failed(claim, "task raised what cannot be read", None, limits, Ending.RAISED)


def out_of_time(claim: Claim, task: Task, ending: Ending, limits: Limits) -> Outcome:
    """Return the outcome of a task whose time limit passed, whatever its body did then: `ending` says what."""
    reason = f"time limit of {task.options.time_limit_seconds or 0:.15g} s passed"
    outcome = failed(claim, reason, f"its body: {ending}", limits, ending)
    return again(task, outcome) if task.options.retries(TimeLimitPassed) else outcome


def crashed(claim: Claim, task: Task, reason: str, detail: str | None, ending: Ending, limits: Limits) -> Outcome:
    """Return the outcome of a task whose body's process has died; nobody knows what it did outside."""
    outcome = failed(claim, reason, detail, limits, ending)
    return again(task, outcome) if task.options.on_crash == "retry" else outcome


def failed(claim: Claim, reason: str, detail: str | None, limits: Limits, ending: Ending) -> Outcome:
    """Return the outcome FAILED; reason and detail are made storable."""
    return Outcome(claim, TaskState.FAILED, None, _error(reason, detail, limits), ending)


def again(task: Task, outcome: Outcome, after_seconds: float | None = None) -> Outcome:
    """Return the outcome that asks for another attempt instead of this one, where one is left."""
    if outcome.claim.attempt >= task.options.max_attempts:
        return outcome
    return outcome._replace(state=TaskState.QUEUED, after_seconds=after_seconds)


def _returned(claim: Claim, result: object, limits: Limits) -> Outcome:
    try:
        text = encode(result, max_depth=limits.max_depth, max_bytes=limits.max_result_bytes)
    except BrokenRule as error:
        return failed(claim, "result cannot be stored", str(error), limits, Ending.RETURNED)
    except BaseException as error:  # noqa: BLE001 - a value of a body's own class may raise anything while it is read
        return failed(claim, "result cannot be stored", _class_and_message(error), limits, Ending.RETURNED)
    return Outcome(claim, TaskState.SUCCEEDED, text, None, Ending.RETURNED)


def _raised(claim: Claim, task: Task | None, error: BaseException, cancel: Cancel, limits: Limits) -> Outcome:
    if isinstance(error, Canceled) and cancel.is_set():
        if cancel.timed_out and task is not None:
            return out_of_time(claim, task, Ending.STOPPED, limits)
        return failed(claim, "task raised Canceled", None, limits, Ending.STOPPED)
    outcome = _of_its_own(claim, task, error, limits)
    if cancel.timed_out and task is not None:
        return out_of_time(claim, task, Ending.RAISED, limits)
    return outcome


def _of_its_own(claim: Claim, task: Task | None, error: BaseException, limits: Limits) -> Outcome:
    """Return the outcome of a body that raised without having been told to stop."""
    if isinstance(error, Failed):
        return failed(claim, message(error) or "task failed", None, limits, Ending.RAISED)
    if isinstance(error, Retry):
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        detail = None if cause is None else _class_and_message(cause)
        outcome = failed(claim, message(error), detail, limits, Ending.RAISED)
        return outcome if task is None else again(task, outcome, error.after_seconds)
    log.warning(
        "body.raised task=%d attempt=%d kind=%s\n%s",
        claim.id,
        claim.attempt,
        claim.kind,
        _traceback(error),
    )
    outcome = failed(claim, f"task raised {type(error).__name__}", _class_and_message(error), limits, Ending.RAISED)
    return again(task, outcome) if task is not None and task.options.retries(type(error)) else outcome


def _class_and_message(error: BaseException) -> str:
    return f"{type(error).__name__}: {message(error)}"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException as fault:  # noqa: BLE001 - a SyntaxError with odd arguments cannot be formatted, for one
        return f"(no traceback: {type(fault).__name__})"


def _error(reason: str, detail: str | None, limits: Limits) -> str:
    error: dict[str, Any] = {"reason": storable_text(reason, limits.max_detail_bytes), "detail": None}
    if detail is not None:
        error["detail"] = storable_text(detail, limits.max_detail_bytes)
    return json.dumps(error, ensure_ascii=False)

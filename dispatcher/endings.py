"""Runs one body and says how it ended. Whatever a body does, this returns an outcome and the slot lives on."""

import json
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dispatcher.kinds import Body, Cancel, Canceled, Context, Failed
from dispatcher.messages import Claim, Ending, Outcome
from sql.documents import BrokenRule, encode, read, storable_text
from sql.states import TaskState

log = logging.getLogger("tally.body")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a result and an error's texts may take."""

    max_depth: int
    max_result_bytes: int
    max_detail_bytes: int


def run_body(claim: Claim, cancel: Cancel, kinds: Mapping[str, Body], limits: Limits) -> Outcome:
    """Run the body of a claim to its end, unless a cancel was accepted before it began."""
    if cancel.is_set():
        return failed(claim, "canceled before it began", None, limits, Ending.NOT_STARTED)
    body = kinds.get(claim.kind)
    if body is None:
        return failed(claim, f"no such kind: {claim.kind}", None, limits, Ending.NOT_STARTED)
    try:
        given: Any = read(claim.input)
    except ValueError as error:
        return failed(claim, "input cannot be read", str(error), limits, Ending.NOT_STARTED)
    try:
        result = body(given, Context(claim.id, claim.attempt, cancel))
    except BaseException as error:  # noqa: BLE001 - the edge where whatever a body raises becomes an outcome
        return raised(claim, error, cancel, limits)
    return _returned(claim, result, limits)


def raised(claim: Claim, error: BaseException, cancel: Cancel, limits: Limits) -> Outcome:
    """Return the outcome of a body that raised, or at whose thread something was thrown before it was heard."""
    try:
        return _raised(claim, error, cancel, limits)
    except BaseException:  # noqa: BLE001 - even the class of what a body raised is its own code
        log.error("body.unreadable task=%d attempt=%d", claim.id, claim.attempt)  # noqa: TRY400 - the same
        return failed(claim, "task raised what cannot be read", None, limits, Ending.RAISED)


def failed(claim: Claim, reason: str, detail: str | None, limits: Limits, ending: Ending) -> Outcome:
    """Return the outcome FAILED; reason and detail are made storable."""
    return Outcome(claim, TaskState.FAILED, None, _error(reason, detail, limits), ending)


def _returned(claim: Claim, result: object, limits: Limits) -> Outcome:
    try:
        text = encode(result, max_depth=limits.max_depth, max_bytes=limits.max_result_bytes)
    except BrokenRule as error:
        return failed(claim, "result cannot be stored", str(error), limits, Ending.RETURNED)
    except BaseException as error:  # noqa: BLE001 - a value of a body's own class may raise anything while it is read
        return failed(claim, "result cannot be stored", _message(error), limits, Ending.RETURNED)
    return Outcome(claim, TaskState.SUCCEEDED, text, None, Ending.RETURNED)


def _raised(claim: Claim, error: BaseException, cancel: Cancel, limits: Limits) -> Outcome:
    if isinstance(error, Canceled) and cancel.is_set():
        return failed(claim, "task raised Canceled", None, limits, Ending.STOPPED)
    if isinstance(error, Failed):
        return failed(claim, _text(error) or "task failed", None, limits, Ending.RAISED)
    log.warning(
        "body.raised task=%d attempt=%d kind=%s\n%s",
        claim.id,
        claim.attempt,
        claim.kind,
        _traceback(error),
    )
    return failed(claim, f"task raised {type(error).__name__}", _message(error), limits, Ending.RAISED)


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {_text(error)}"


def _text(error: BaseException) -> str:
    try:
        # Its own class of text might be returned, with methods that raise later: this is a plain one.
        return str.__str__(str(error))
    except BaseException:  # noqa: BLE001 - __str__ is the body's code too
        return "(its message cannot be read)"


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

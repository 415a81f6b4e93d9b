"""Whatever a body does, one outcome comes of it."""

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from threading import Timer
from time import monotonic, sleep
from typing import Any, NoReturn

import msgspec
import pytest

from dispatcher import Canceled, Context, Failed, Retry, Task, TimeLimitPassed
from dispatcher.context import Cancel
from dispatcher.endings import Limits, crashed, failed, out_of_time, run_body
from dispatcher.messages import Ending, Outcome
from sql.states import TaskState
from tests.dispatcher.given import LIMITS, a_claim, a_task


def outcome_of(
    body: Callable[..., object],
    *,
    input: str = "{}",  # noqa: A002
    canceled: bool = False,
    limits: Limits = LIMITS,
) -> Outcome:
    cancel = Cancel()
    if canceled:
        cancel.set()
    return run_body(a_claim(kind="it", input=input), cancel, {"it": a_task("it", body)}, limits)


def outcome_of_result(result: object, limits: Limits = LIMITS) -> Outcome:
    return outcome_of(lambda _input, _context: result, limits=limits)


def outcome_of_raising(error: BaseException, limits: Limits = LIMITS) -> Outcome:
    def body(input: dict[str, Any], context: Context) -> NoReturn:  # noqa: A002
        raise error

    return outcome_of(body, limits=limits)


def error_of(outcome: Outcome) -> dict[str, Any]:
    """Return the error of a FAILED outcome; it is text that jsonb takes."""
    assert outcome.state is TaskState.FAILED
    assert outcome.result is None
    assert outcome.error is not None
    assert "\\u0000" not in outcome.error
    outcome.error.encode()
    error: dict[str, Any] = json.loads(outcome.error)
    assert set(error) == {"reason", "detail"}
    return error


@pytest.mark.parametrize("result", [None, True, 0, -1.5, "é\U0001f600", [1, [2]], {"a": {"b": None}}, (1, 2)])
def test_what_a_body_returns_is_the_result(result: object) -> None:
    outcome = outcome_of_result(result)

    assert outcome.state is TaskState.SUCCEEDED
    assert outcome.error is None
    assert outcome.result == json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    assert outcome.ending is Ending.RETURNED


def test_the_body_gets_the_input_and_its_context() -> None:
    seen: list[object] = []

    def body(input: dict[str, Any], context: Context) -> None:  # noqa: A002
        seen.extend([input, context.task_id, context.attempt, context.cancel_requested])

    outcome_of(body, input='{"a": [1, 2.5]}')

    assert seen == [{"a": [1, 2.5]}, 1, 1, False]


def test_a_large_double_that_the_database_wrote_out_can_be_returned_as_it_came() -> None:
    outcome = outcome_of(lambda input, _context: input, input='{"a": 100000000000000000000}')  # noqa: A006

    assert (outcome.state, outcome.result) == (TaskState.SUCCEEDED, '{"a":1e+20}')


@pytest.mark.parametrize(
    ("result", "place", "rule"),
    [
        ({"a": [1, float("nan")]}, "/a/1", "not finite"),
        (float("inf"), "the top", "not finite"),
        ({"b": {1}}, "/b", "set is not a JSON value"),
        ({1: 2}, "the top", "a key of type int"),
        (["x\0y"], "/0", "U+0000"),
        ({"k\0": 1}, "the top", "U+0000"),
        ("\ud800", "the top", "surrogate"),
        (2**63, "the top", "64 bits"),
        ({"a/b": {"~": b""}}, "/a~1b/~0", "bytes is not a JSON value"),
        ([object()], "/0", "object is not a JSON value"),
    ],
)
def test_a_result_that_cannot_be_stored_fails_with_its_place(result: object, place: str, rule: str) -> None:
    outcome = outcome_of_result(result)

    error = error_of(outcome)
    assert error["reason"] == "result cannot be stored"
    assert error["detail"].endswith(f"(at {place})")
    assert rule in error["detail"]
    assert outcome.ending is Ending.RETURNED


def test_a_result_too_deep_or_too_large_fails() -> None:
    limits = Limits(max_depth=3, max_result_bytes=100, max_detail_bytes=1000)
    loop: list[object] = []
    loop.append(loop)

    assert "deep" in error_of(outcome_of_result([[[[1]]]], limits))["detail"]
    assert "deep" in error_of(outcome_of_result(loop, limits))["detail"]
    assert "100 bytes" in error_of(outcome_of_result("x" * 101, limits))["detail"]
    assert "100 bytes" in error_of(outcome_of_result("é" * 60, limits))["detail"]


class FailingItems(dict[str, int]):
    def items(self) -> NoReturn:
        raise ValueError("no items")


class LeavingItems(dict[str, int]):
    def items(self) -> NoReturn:
        sys.exit("no items")


class NoAttributes:
    def __getattribute__(self, name: str) -> NoReturn:
        raise ValueError("no attributes")


@pytest.mark.parametrize("kind", [FailingItems, LeavingItems, NoAttributes])
def test_a_result_whose_class_misbehaves_fails_the_task_only(kind: type) -> None:
    assert error_of(outcome_of_result(kind()))["reason"] == "result cannot be stored"


def test_an_exception_gives_its_class_as_the_reason_and_its_words_as_the_detail() -> None:
    outcome = outcome_of_raising(ValueError("no such customer"))

    assert error_of(outcome) == {"reason": "task raised ValueError", "detail": "ValueError: no such customer"}
    assert outcome.ending is Ending.RAISED


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError(), MemoryError()]
)
def test_even_what_would_end_a_process_only_fails_the_task(error: BaseException) -> None:
    assert error_of(outcome_of_raising(error))["reason"] == f"task raised {type(error).__name__}"


def test_a_body_that_calls_itself_without_end_fails() -> None:
    def body(input: dict[str, Any], context: Context) -> object:  # noqa: A002
        return body(input, context)

    assert error_of(outcome_of(body))["reason"] == "task raised RecursionError"


class UnreadableText(str):
    __slots__ = ()

    def __format__(self, spec: str) -> NoReturn:
        raise ValueError("no format")

    def replace(self, *_: object) -> NoReturn:
        raise ValueError("no replace")

    def __len__(self) -> NoReturn:
        raise ValueError("no length")


class Wordless(Exception):
    def __str__(self) -> NoReturn:
        raise ValueError("no words")


class LeavingWords(Exception):
    def __str__(self) -> NoReturn:  # noqa: PLE0307 - what the test is about
        sys.exit("no words")


class OddWords(Exception):
    def __str__(self) -> str:
        return UnreadableText("odd")


class NotText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value] # noqa: PLE0307 - what the test is about


@pytest.mark.parametrize("kind", [Wordless, LeavingWords, NotText])
def test_an_exception_whose_words_cannot_be_read_fails_the_task(kind: type[Exception]) -> None:
    error = error_of(outcome_of_raising(kind()))

    assert error == {
        "reason": f"task raised {kind.__name__}",
        "detail": f"{kind.__name__}: (its message cannot be read)",
    }


def test_an_exception_whose_words_are_of_an_odd_class_fails_the_task() -> None:
    assert error_of(outcome_of_raising(OddWords()))["detail"] == "OddWords: odd"


class OddFailed(Failed):
    def __str__(self) -> str:
        return UnreadableText("odd")


class WordlessFailed(Failed):
    def __str__(self) -> NoReturn:
        raise ValueError("no words")


def test_an_exception_whose_traceback_cannot_be_formatted_fails_the_task() -> None:
    odd = SyntaxError("odd", ("file", 1, 1, 7))  # type: ignore[arg-type] # what the test is about

    assert error_of(outcome_of_raising(odd))["reason"] == "task raised SyntaxError"


def test_failed_gives_the_reason_in_the_bodys_own_words() -> None:
    outcome = outcome_of_raising(Failed("card declined"))

    assert error_of(outcome) == {"reason": "card declined", "detail": None}
    assert outcome.ending is Ending.RAISED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Failed(), "task failed"),
        (Failed(""), "task failed"),
        (Failed("a\0b"), "a\ufffdb"),
        (Failed("a\ud800b"), "a?b"),
        (WordlessFailed(), "(its message cannot be read)"),
        (OddFailed(), "odd"),
    ],
)
def test_failed_with_any_words_gives_a_reason_that_can_be_stored(error: Failed, reason: str) -> None:
    assert error_of(outcome_of_raising(error))["reason"] == reason


def test_long_words_are_cut_at_a_character() -> None:
    limits = Limits(max_depth=64, max_result_bytes=1000, max_detail_bytes=256)

    detail = error_of(outcome_of_raising(ValueError("é" * 1_000_000), limits))["detail"]
    reason = error_of(outcome_of_raising(Failed("é" * 1_000_000), limits))["reason"]

    for text in (detail, reason):
        assert 250 <= len(text.encode()) <= 256
        assert text.endswith("é…")


def test_an_exception_with_nul_and_surrogates_gives_a_detail_that_can_be_stored() -> None:
    assert error_of(outcome_of_raising(ValueError("a\0b\ud800")))["detail"] == "ValueError: a\ufffdb?"


def test_canceled_after_an_accepted_cancel_ends_stopped() -> None:
    cancel = Cancel()

    def body(input: dict[str, Any], context: Context) -> None:  # noqa: A002
        cancel.set()
        context.raise_if_canceled()

    outcome = run_body(a_claim(kind="it"), cancel, {"it": a_task("it", body)}, LIMITS)

    assert outcome.ending is Ending.STOPPED


def test_canceled_without_an_accepted_cancel_is_an_exception_like_any_other() -> None:
    outcome = outcome_of_raising(Canceled())

    assert error_of(outcome)["reason"] == "task raised Canceled"
    assert outcome.ending is Ending.RAISED


def test_a_body_whose_cancel_was_accepted_before_does_not_begin() -> None:
    begun = []

    outcome = outcome_of(lambda _input, _context: begun.append(1), canceled=True)

    assert begun == []
    assert outcome.ending is Ending.NOT_STARTED


def test_an_unknown_kind_fails_by_its_name() -> None:
    outcome = run_body(a_claim(kind="no.such"), Cancel(), {}, LIMITS)

    assert error_of(outcome)["reason"] == "no such kind: no.such"
    assert outcome.ending is Ending.NOT_STARTED


@pytest.mark.parametrize("text", ['{"n": ' + "9" * 5000 + "}", "[" * 100_000 + "]" * 100_000, "{", ""])
def test_an_input_that_cannot_be_read_fails_before_the_body_begins(text: str) -> None:
    begun = []

    outcome = outcome_of(lambda _input, _context: begun.append(1), input=text)

    assert begun == []
    assert error_of(outcome)["reason"] == "input cannot be read"
    assert outcome.ending is Ending.NOT_STARTED


def test_a_reason_from_elsewhere_is_made_storable_too() -> None:
    outcome = failed(a_claim(), "a\0b", "c\ud800d", LIMITS, Ending.STILL_RUNNING)

    assert error_of(outcome) == {"reason": "a\ufffdb", "detail": "c?d"}


async def asleep(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    await asyncio.sleep(30)
    return "slept"


def told_to_stop(task: Task, *, timed_out: bool) -> Outcome:
    """Return the outcome of a body that is told to stop soon after it has begun."""
    cancel = Cancel()

    def stop() -> None:
        cancel.timed_out = timed_out
        cancel.set()

    soon = Timer(0.05, stop)
    soon.start()
    began = monotonic()
    outcome = run_body(a_claim(kind="it"), cancel, {"it": task}, LIMITS)
    soon.join()
    assert monotonic() - began < 10
    return outcome


def test_what_an_async_body_returns_is_the_result() -> None:
    async def body(input: dict[str, Any], context: Context) -> object:  # noqa: A002
        await asyncio.sleep(0)
        return input["a"] + context.attempt

    assert outcome_of(body, input='{"a": 2}').result == "3"


def test_what_an_async_body_raises_is_its_error() -> None:
    async def body(input: dict[str, Any]) -> object:  # noqa: A002
        await asyncio.sleep(0)
        raise ValueError("no such customer")

    assert error_of(outcome_of(body))["detail"] == "ValueError: no such customer"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_async_body_that_would_end_its_loop_only_fails_the_task(error: BaseException) -> None:
    async def body(input: dict[str, Any]) -> object:  # noqa: A002
        raise error

    assert error_of(outcome_of(body))["reason"] == f"task raised {type(error).__name__}"


def test_an_async_body_is_stopped_where_it_awaits() -> None:
    outcome = told_to_stop(a_task("it", asleep), timed_out=False)

    assert error_of(outcome)["reason"] == "task raised Canceled"
    assert outcome.ending is Ending.STOPPED


def test_an_async_body_may_tidy_up_and_what_it_left_running_ends_with_it() -> None:
    done: list[str] = []

    async def left() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            done.append("left")

    async def body(input: dict[str, Any]) -> object:  # noqa: A002
        running = asyncio.create_task(left())
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            done.append("tidied")
        return str(running.done())

    assert told_to_stop(a_task("it", body), timed_out=False).result == '"False"'
    assert done == ["tidied", "left"]


def test_a_time_limit_that_passed_stops_a_body_and_is_the_reason() -> None:
    def waits(input: dict[str, Any], context: Context) -> None:  # noqa: A002
        context.sleep(30)

    for body in (waits, asleep):
        outcome = told_to_stop(a_task("it", body, time_limit_seconds=2592000.0), timed_out=True)

        assert error_of(outcome) == {"reason": "time limit of 2592000 s passed", "detail": "its body: stopped"}
        assert outcome.ending is Ending.STOPPED


@pytest.mark.parametrize(("raises", "ending"), [(False, Ending.RETURNED), (True, Ending.RAISED)])
def test_a_time_limit_that_passed_wins_over_what_the_body_then_did(raises: bool, ending: Ending) -> None:
    def body(input: dict[str, Any], context: Context) -> object:  # noqa: A002
        while not context.cancel_requested:
            sleep(0.001)
        if raises:
            raise Failed("gave up")
        return 1

    outcome = told_to_stop(a_task("it", body, time_limit_seconds=0.5), timed_out=True)

    assert error_of(outcome) == {"reason": "time limit of 0.5 s passed", "detail": f"its body: {ending}"}
    assert outcome.ending is ending


def attempt_of(error: BaseException, attempt: int = 1, **options: Any) -> Outcome:
    """Return the outcome of one attempt, of three if nothing else is said, that raised this."""

    def body(input: dict[str, Any]) -> NoReturn:  # noqa: A002
        raise error

    task = a_task("it", body, **{"max_attempts": 3, **options})
    return run_body(a_claim(kind="it", attempt=attempt), Cancel(), {"it": task}, LIMITS)


def asked(outcome: Outcome) -> dict[str, Any]:
    """Return why an attempt ended that another is to follow."""
    assert outcome.state is TaskState.QUEUED
    assert outcome.result is None
    assert outcome.error is not None
    error: dict[str, Any] = json.loads(outcome.error)
    return error


def test_an_exception_asks_for_another_attempt_after_the_kinds_backoff() -> None:
    outcome = attempt_of(ValueError("busy"))

    assert asked(outcome) == {"reason": "task raised ValueError", "detail": "ValueError: busy"}
    assert outcome.after_seconds is None
    assert outcome.ending is Ending.RAISED


def test_the_last_attempt_is_final() -> None:
    assert attempt_of(ValueError("busy"), attempt=2).state is TaskState.QUEUED
    assert attempt_of(ValueError("busy"), attempt=3).state is TaskState.FAILED
    assert attempt_of(ValueError("busy"), max_attempts=1).state is TaskState.FAILED


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (FileExistsError(), TaskState.QUEUED),
        (FileNotFoundError(), TaskState.FAILED),
        (ValueError(), TaskState.FAILED),
        (Retry(), TaskState.QUEUED),
        (Canceled(), TaskState.FAILED),
    ],
    ids=lambda given: type(given).__name__,
)
def test_each_exception_is_retried_as_its_kind_says(error: BaseException, state: TaskState) -> None:
    assert attempt_of(error, retry_on=(OSError,), fail_on=(FileNotFoundError,)).state is state


@pytest.mark.parametrize("error", [Failed("no"), SystemExit(1), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_what_is_final_is_never_retried(error: BaseException) -> None:
    assert attempt_of(error).state is TaskState.FAILED


def test_retry_says_when_and_why() -> None:
    outcome = attempt_of(Retry(after=timedelta(minutes=2), reason="rate limit"), fail_on=(Exception,))

    assert asked(outcome) == {"reason": "rate limit", "detail": None}
    assert outcome.after_seconds == 120.0


def test_retry_keeps_what_it_was_raised_from() -> None:
    for error in (raised_from_another(ValueError("busy")), raised_while_handling(ValueError("busy"))):
        assert asked(attempt_of(error)) == {"reason": "task asked for another attempt", "detail": "ValueError: busy"}


def raised_from_another(cause: Exception) -> Retry:
    retry = Retry()
    retry.__cause__ = cause
    return retry


def raised_while_handling(cause: Exception) -> Retry:
    try:
        try:
            raise cause
        except ValueError:
            raise Retry  # noqa: B904 - what the test is about
    except Retry as retry:
        return retry


def test_retry_with_no_attempt_left_fails_with_its_reason() -> None:
    assert error_of(attempt_of(Retry(reason="rate limit"), attempt=3))["reason"] == "rate limit"


@pytest.mark.parametrize("after", [-1, float("inf"), float("nan"), "1", True, timedelta(days=31)])
def test_retry_after_no_time_at_all_is_a_mistake_of_the_body(after: Any) -> None:
    with pytest.raises(ValueError, match=r"a retry comes after 0 to 2592000 seconds|expected seconds"):
        Retry(after=after)


def test_an_attempt_that_was_told_to_stop_asks_for_no_other() -> None:
    assert told_to_stop(a_task("it", asleep, max_attempts=3), timed_out=False).state is TaskState.FAILED


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({}, TaskState.QUEUED),
        ({"retry_on": (OSError, TimeLimitPassed)}, TaskState.QUEUED),
        ({"retry_on": (OSError,)}, TaskState.FAILED),
        ({"fail_on": (TimeLimitPassed,)}, TaskState.FAILED),
        ({"max_attempts": 1}, TaskState.FAILED),
    ],
)
def test_a_time_limit_that_passed_is_retried_as_an_exception_is(options: dict[str, Any], state: TaskState) -> None:
    task = a_task("it", asleep, **{"max_attempts": 2, "time_limit_seconds": 5.0, **options})

    outcome = out_of_time(a_claim(kind="it"), task, Ending.SIGKILL, LIMITS)

    assert outcome.state is state
    assert json.loads(outcome.error or "") == {
        "reason": "time limit of 5 s passed",
        "detail": "its body: killed by SIGKILL",
    }


def test_a_crash_is_retried_only_where_the_kind_says_so() -> None:
    def of(**options: Any) -> Outcome:
        task = a_task("it", asleep, **options)
        return crashed(a_claim(kind="it"), task, "worker process killed by SIGSEGV", "pid 7", Ending.DIED, LIMITS)

    assert error_of(of(max_attempts=3)) == {"reason": "worker process killed by SIGSEGV", "detail": "pid 7"}
    assert asked(of(max_attempts=3, on_crash="retry"))["reason"] == "worker process killed by SIGSEGV"
    assert of(max_attempts=3, on_crash="retry").after_seconds is None


class Unreadable(msgspec.Struct):
    month: int

    def __post_init__(self) -> None:
        if self.month == 13:
            raise ValueError("there is no such month")
        if self.month == 14:
            raise KeyError(14)
        if self.month == 15:
            sys.exit("no")


def of_month(input: Unreadable) -> object:  # noqa: A002
    return input.month


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('{"month": "May"}', "Expected `int`, got `str` (at /month)"),
        ("{}", "Object missing required field `month` (at /month)"),
        ('{"month": 13}', "there is no such month (at the top)"),
        ('{"month": 14}', "KeyError: 14 (at the top)"),
    ],
)
def test_an_input_that_does_not_fit_its_kind_fails_at_its_place_for_good(text: str, detail: str) -> None:
    task = a_task("it", of_month, max_attempts=3)

    outcome = run_body(a_claim(kind="it", input=text), Cancel(), {"it": task}, LIMITS)

    assert error_of(outcome) == {"reason": "input does not fit its kind", "detail": detail}
    assert outcome.ending is Ending.NOT_STARTED


def test_a_type_that_would_end_the_process_only_fails_the_task() -> None:
    outcome = run_body(a_claim(kind="it", input='{"month": 15}'), Cancel(), {"it": a_task("it", of_month)}, LIMITS)

    assert error_of(outcome)["reason"] == "task raised SystemExit"


def test_a_result_that_is_not_kept_is_not_even_looked_at() -> None:
    outcome = run_body(
        a_claim(kind="it"), Cancel(), {"it": a_task("it", lambda _input: object(), keep_result=False)}, LIMITS
    )

    assert (outcome.state, outcome.result) == (TaskState.SUCCEEDED, "null")

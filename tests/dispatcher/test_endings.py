"""Whatever a body does, one outcome comes of it."""

import json
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from dispatcher import Canceled, Context, Failed
from dispatcher.endings import Limits, failed, run_body
from dispatcher.kinds import Cancel
from dispatcher.messages import Ending, Outcome
from sql.states import TaskState
from tests.dispatcher.given import LIMITS, a_claim


def outcome_of(
    body: Callable[[dict[str, Any], Context], object],
    *,
    input: str = "{}",  # noqa: A002
    canceled: bool = False,
    limits: Limits = LIMITS,
) -> Outcome:
    cancel = Cancel()
    if canceled:
        cancel.set()
    return run_body(a_claim(kind="it", input=input), cancel, {"it": body}, limits)


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

    outcome = run_body(a_claim(kind="it"), cancel, {"it": body}, LIMITS)

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

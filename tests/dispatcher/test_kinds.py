"""Declaring kinds, what a declared kind is, and loading the modules that declare them."""

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher import Backoff, Canceled, Context, Failed, Task, task
from dispatcher.context import Cancel
from dispatcher.declarations import BadDeclaration, Options
from dispatcher.kinds import KINDS, DuplicateKind, load

CONTEXT = Context(7, 2, Cancel())


@pytest.fixture(autouse=True)
def _kinds_as_before() -> Iterator[None]:
    known = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(known)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path; what was imported from it is forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def first(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Say what it was given."""
    return input, context


def second(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    return None


class Report(msgspec.Struct):
    month: int


@dataclass
class Mail:
    to: str


def test_a_declared_function_runs_its_kind_and_is_called_as_before() -> None:
    declared = task("mail.send")(first)

    assert KINDS["mail.send"] is declared
    assert (declared.kind, declared.body, declared.options) == ("mail.send", first, Options())
    assert declared({"a": 1}, context=CONTEXT) == ({"a": 1}, CONTEXT)
    assert inspect.unwrap(declared) is first
    assert declared.__doc__ == "Say what it was given."


def test_every_option_is_kept_and_times_in_seconds() -> None:
    declared = task(
        "mail.send",
        slot="process",
        time_limit=timedelta(minutes=1),
        max_attempts=3,
        backoff=Backoff(first=2, factor=3, cap=timedelta(hours=1)),
        retry_on=OSError,
        fail_on=(FileNotFoundError, PermissionError),
        on_crash="retry",
        queue="mails",
        keep_result=False,
    )(first)

    assert declared.options == Options(
        slot="process",
        time_limit_seconds=60.0,
        max_attempts=3,
        backoff=Backoff(2.0, 3.0, 3600.0),
        retry_on=(OSError,),
        fail_on=(FileNotFoundError, PermissionError),
        on_crash="retry",
        queue="mails",
        keep_result=False,
    )


BAD: list[tuple[dict[str, Any], str]] = [
    ({"retries": 3}, "retries: there is no such option"),
    ({"slot": "fiber"}, "slot: expected 'thread' or 'process', got 'fiber'"),
    ({"time_limit": 0}, "time_limit: expected more than 0 "),
    ({"time_limit": timedelta(days=31)}, "time_limit: expected more than 0 and at most 2592000 seconds"),
    ({"time_limit": float("nan")}, "time_limit: expected more than 0 "),
    ({"time_limit": True}, "time_limit: expected seconds or a timedelta, got True"),
    ({"time_limit": 10**400}, "time_limit: expected seconds or a timedelta"),
    ({"max_attempts": 0}, "max_attempts: expected 1 to 100, got 0"),
    ({"max_attempts": 101}, "max_attempts: expected 1 to 100, got 101"),
    ({"max_attempts": 2.0}, "max_attempts: expected 1 to 100, got 2.0"),
    ({"max_attempts": True}, "max_attempts: expected 1 to 100, got True"),
    ({"max_attempts": 2, "backoff": 5}, "backoff: expected Backoff(first, factor, cap), got 5"),
    ({"max_attempts": 2, "backoff": Backoff(first=-1)}, "backoff: expected 0 <= first <= cap"),
    ({"max_attempts": 2, "backoff": Backoff(first=700)}, "got first 700, cap 600"),
    ({"max_attempts": 2, "backoff": Backoff(cap=timedelta(days=31))}, "backoff: expected 0 <= first <= cap"),
    ({"max_attempts": 2, "backoff": Backoff(factor=0.5)}, "backoff: expected a factor of 1 to 1000, got 0.5"),
    ({"max_attempts": 2, "backoff": Backoff(factor=1001)}, "backoff: expected a factor of 1 to 1000, got 1001"),
    ({"max_attempts": 2, "backoff": Backoff(factor=float("nan"))}, "backoff: expected a factor of 1 to 1000, got nan"),
    ({"max_attempts": 2, "backoff": Backoff(first="1")}, "backoff: expected seconds or a timedelta, got '1'"),  # type: ignore[arg-type]
    ({"max_attempts": 2, "retry_on": SystemExit}, "retry_on: expected subclasses of Exception"),
    ({"max_attempts": 2, "retry_on": "OSError"}, "retry_on: expected subclasses of Exception"),
    ({"max_attempts": 2, "retry_on": (OSError, Failed)}, "retry_on: Failed is never followed by another attempt"),
    ({"max_attempts": 2, "retry_on": Canceled}, "retry_on: Canceled is never followed by another attempt"),
    ({"max_attempts": 2, "fail_on": [OSError]}, "fail_on: expected subclasses of Exception"),
    ({"on_crash": "again"}, "on_crash: expected 'fail' or 'retry', got 'again'"),
    ({"on_crash": "retry"}, "on_crash: 'retry' needs max_attempts of 2 or more"),
    ({"max_attempts": 1, "backoff": Backoff()}, "backoff: means nothing without max_attempts of 2 or more"),
    ({"retry_on": OSError}, "retry_on: means nothing without max_attempts of 2 or more"),
    ({"fail_on": OSError}, "fail_on: means nothing without max_attempts of 2 or more"),
    ({"queue": ""}, "queue: the name of a queue has 1 to 255 bytes"),
    ({"queue": "é" * 128}, "queue: the name of a queue has 1 to 255 bytes"),
    ({"queue": "a\0b"}, "queue: the name of a queue has 1 to 255 bytes, none of them NUL"),
    ({"queue": 7}, "queue: the name of a queue is text, got 7"),
    ({"keep_result": 1}, "keep_result: expected True or False, got 1"),
]


@pytest.mark.parametrize(("options", "said"), BAD, ids=[said for _, said in BAD])
def test_an_option_that_means_nothing_is_refused_with_the_place(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadDeclaration) as refused:
        task("mail.send", **options)(first)

    assert str(refused.value).startswith(f"{__name__}.first ({__file__}:")
    assert said in str(refused.value)
    assert "mail.send" not in KINDS


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(BadDeclaration, match=r"no_such: .*; slot: .*; max_attempts: "):
        task("mail.send", no_such=1, slot="fiber", max_attempts=-1)(first)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["", "é" * 128, "\ud800", "a\0b", 7])
def test_a_kind_that_no_row_can_have_is_refused(kind: Any) -> None:
    with pytest.raises(BadDeclaration, match=r"255 bytes|surrogates|is text"):
        task(kind)(first)


def test_a_kind_without_its_name_is_refused_with_the_place() -> None:
    with pytest.raises(BadDeclaration, match=re.escape(f"{__name__}.first ({__file__}:")):
        task(first)  # type: ignore[arg-type]


def test_two_functions_of_one_kind_are_refused_by_both_places() -> None:
    declared = task("mail.send")(first)

    with pytest.raises(DuplicateKind, match=r"'mail.send'.*test_kinds\.first \(.*test_kinds\.second \("):
        task("mail.send")(second)

    assert KINDS["mail.send"] is declared


def test_functions_of_two_files_with_the_same_code_are_two(modules: Path) -> None:
    for name in ("one", "other"):
        (modules / f"{name}.py").write_text(
            "from dispatcher import task\n@task('mail.same')\ndef send(input): return 1\n"
        )

    (problem,) = load(["one", "other"])

    assert "one.send" in problem
    assert "other.send" in problem


def test_a_module_that_is_loaded_again_declares_again() -> None:
    task("mail.send")(first)
    declared = task("mail.send", max_attempts=2)(first)

    assert KINDS["mail.send"] is declared


def test_one_function_may_run_two_kinds() -> None:
    both = task("mail.other")(task("mail.send")(first))

    assert KINDS["mail.send"].body is KINDS["mail.other"].body is both.body is first


def test_an_object_that_can_be_called_is_a_body() -> None:
    class Sender:
        def __call__(self, input: Report, context: Context) -> object:  # noqa: A002, ARG002
            return input.month

    declared = task("mail.send")(Sender())

    assert declared.run(declared.read('{"month": 3}'), CONTEXT) == 3
    with pytest.raises(DuplicateKind, match=r"mail\.send"):
        task("mail.send")(Sender())


def passes_on(body: Any) -> Any:
    @wraps(body)
    def wrapper(*args: Any) -> Any:
        return body(*args)

    return wrapper


def test_two_functions_in_the_same_wrapper_are_two(modules: Path) -> None:
    task("mail.send")(passes_on(first))

    with pytest.raises(DuplicateKind, match=r"test_kinds\.first \(.*test_kinds\.second \("):
        task("mail.send")(passes_on(second))


def of_report(input: Report) -> object:  # noqa: A002
    return input.month


async def of_report_later(input: "Report", context: Context) -> object:  # noqa: A002
    return input.month + context.attempt


def with_more(input: Report, more: int) -> object:  # noqa: A002
    return input.month + more


@pytest.mark.parametrize(
    ("body", "returned"),
    [
        (of_report, 3),
        (of_report_later, 5),
        (passes_on(of_report), 3),
        (passes_on(of_report_later), 5),
        (passes_on(passes_on(of_report)), 3),
        (partial(with_more, more=4), 7),
        (lambda *args: args[0]["month"] + len(args), 5),
        (lambda given, *, more=1: given["month"] + more, 4),
    ],
    ids=["one parameter", "async", "wrapped", "async wrapped", "wrapped twice", "partial", "any", "keywords"],
)
def test_a_body_is_called_with_what_it_takes(body: Any, returned: int) -> None:
    declared = task("report.build")(body)

    assert declared.run(declared.read('{"month": 3}'), CONTEXT) == returned


@pytest.mark.parametrize(
    "body",
    [lambda: None, lambda a, b, c: (a, b, c), lambda a, *, b: (a, b), lambda *, a: a],
    ids=["nothing", "three", "a keyword besides", "a keyword"],
)
def test_a_body_that_cannot_be_called_is_refused(body: Any) -> None:
    with pytest.raises(BadDeclaration, match=r"expected parameters \(input, context\) or \(input\), got"):
        task("mail.send")(body)


def of_nobody(input: "NoSuchName") -> None: ...  # type: ignore[name-defined] # noqa: A002, F821


def of_list(input: list[int]) -> None: ...  # noqa: A002


def of_complex(input: complex) -> None: ...  # noqa: A002


def of_either(input: Report | None) -> None: ...  # noqa: A002


class Caller:
    def __call__(self, input: "list[int]") -> None: ...  # noqa: A002


@pytest.mark.parametrize(
    ("body", "function"),
    [(partial(of_list), "of_list"), (Caller(), "Caller.__call__")],
    ids=["partial", "object"],
)
def test_whatever_is_declared_is_named_by_the_function_behind_it(body: Any, function: str) -> None:
    with pytest.raises(BadDeclaration, match=re.escape(f"{__name__}.{function} ({__file__}:")):
        task("mail.send")(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (of_nobody, "NameError: name 'NoSuchName' is not defined"),
        (of_list, "an input is a JSON object, and list[int] is not"),
        (of_complex, "<class 'complex'> is not supported"),
        (of_either, "an input is a JSON object"),
    ],
)
def test_an_annotation_that_no_object_is_read_as_is_refused_in_one_line(body: Any, said: str) -> None:
    with pytest.raises(BadDeclaration, match=re.escape(said)) as refused:
        task("mail.send")(body)

    assert "\n" not in str(refused.value)
    assert "mail.send" not in KINDS


def test_load_imports_each_module(modules: Path) -> None:
    (modules / "mail_tasks.py").write_text(
        "from dispatcher import task\n@task('mail.load')\ndef send(input, context): return 1\n"
    )

    assert load(["mail_tasks"]) == []
    assert isinstance(KINDS["mail.load"], Task)


def test_load_names_every_module_that_fails_and_why(modules: Path) -> None:
    (modules / "raises.py").write_text("raise ValueError('no key')\n")
    (modules / "leaves.py").write_text("import sys\nsys.exit('go away')\n")
    (modules / "broken.py").write_text("def\n")
    (modules / "twice.py").write_text(
        "from dispatcher import task\n"
        "@task('mail.twice')\ndef one(input, context): return 1\n"
        "@task('mail.twice')\ndef two(input, context): return 2\n"
    )

    problems = load(["raises", "not.there", "leaves", "broken", "twice", ".relative"])

    assert [problem.partition(": ")[0] for problem in problems] == [
        "tasks module raises",
        "tasks module not.there",
        "tasks module leaves",
        "tasks module broken",
        "tasks module twice",
        "tasks module .relative",
    ]
    assert problems[0].endswith(f"ValueError: no key (at {modules}/raises.py:1)")
    assert problems[3].endswith(f"(at {modules}/broken.py:1)")
    assert f"twice.one ({modules}/twice.py:2)" in problems[4]
    assert f"twice.two ({modules}/twice.py:4)" in problems[4]


def test_what_fails_deep_in_a_package_is_named_by_the_innermost_place_in_it(modules: Path) -> None:
    package = modules / "myapp"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text("import json\nimport myapp.models\n")
    (package / "models.py").write_text("import json\n\n\njson.loads('{')\n")

    (problem,) = load(["myapp.tasks"])

    assert problem.startswith("tasks module myapp.tasks: JSONDecodeError: ")
    assert problem.endswith(f" (at {package}/models.py:4)")

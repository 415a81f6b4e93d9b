"""Declaring kinds, loading the modules that do, and what a body may ask of its context."""

import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread, Timer
from time import monotonic
from typing import Any

import pytest

from dispatcher import Canceled, Context, task
from dispatcher.kinds import KINDS, Body, Cancel, DuplicateKind, load


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
    return None


def second(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    return None


def test_a_declared_function_runs_its_kind_and_stays_what_it_was() -> None:
    assert task("mail.send")(first) is first
    assert KINDS["mail.send"] is first


def test_two_functions_of_one_kind_are_refused_by_both_names() -> None:
    task("mail.send")(first)

    with pytest.raises(DuplicateKind, match=r"'mail.send'.*test_kinds\.first .*test_kinds\.second"):
        task("mail.send")(second)

    assert KINDS["mail.send"] is first


def test_a_module_that_is_loaded_again_declares_again() -> None:
    task("mail.send")(first)
    task("mail.send")(first)

    assert KINDS["mail.send"] is first


def test_an_object_that_can_be_called_is_a_body() -> None:
    class Sender:
        def __call__(self, input: dict[str, Any], context: Context) -> object:  # noqa: A002, ARG002
            return None

    sender: Body = Sender()

    assert task("mail.send")(sender) is sender
    with pytest.raises(DuplicateKind, match=r"mail\.send"):
        task("mail.send")(Sender())


@pytest.mark.parametrize("kind", ["", "é" * 128, "\ud800"])
def test_a_kind_that_no_row_can_have_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"255 bytes|surrogates"):
        task(kind)


def test_load_imports_each_module(modules: Path) -> None:
    (modules / "mail_tasks.py").write_text(
        "from dispatcher import task\n@task('mail.load')\ndef send(input, context): return 1\n"
    )

    assert load(["mail_tasks"]) == []
    assert "mail.load" in KINDS


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
    assert "ValueError: no key" in problems[0]
    assert "twice.one" in problems[4]
    assert "twice.two" in problems[4]


def test_a_body_sees_which_task_it_runs() -> None:
    context = Context(7, 2, Cancel())

    assert (context.task_id, context.attempt, context.cancel_requested) == (7, 2, False)
    context.raise_if_canceled()
    assert repr(context) == "<Context task 7, attempt 2>"


def test_a_body_sees_that_its_cancel_was_accepted() -> None:
    cancel = Cancel()
    context = Context(7, 1, cancel)

    cancel.set()

    assert context.cancel_requested
    with pytest.raises(Canceled):
        context.raise_if_canceled()


def test_sleep_ends_early_by_raising_when_a_cancel_is_accepted() -> None:
    cancel = Cancel()
    soon = Timer(0.02, cancel.set)
    soon.start()
    began = monotonic()

    with pytest.raises(Canceled):
        Context(7, 1, cancel).sleep(30)

    assert monotonic() - began < 10
    soon.join()


def test_sleep_after_an_accepted_cancel_does_not_begin() -> None:
    cancel = Cancel()
    cancel.set()

    with pytest.raises(Canceled):
        Context(7, 1, cancel).sleep(0)


def test_sleep_without_a_cancel_just_returns() -> None:
    Context(7, 1, Cancel()).sleep(0.001)


def test_everybody_who_waits_for_a_cancel_is_told() -> None:
    cancel = Cancel()
    told: SimpleQueue[bool] = SimpleQueue()
    waiting = [Thread(target=lambda: told.put(cancel.wait(20))) for _ in range(4)]
    for thread in waiting:
        thread.start()

    cancel.set()

    for thread in waiting:
        thread.join(10)
    assert [told.get(timeout=1) for _ in waiting] == [True] * 4
    assert cancel.wait(20)


def test_a_cancel_that_races_with_who_begins_to_wait_is_never_missed() -> None:
    for _ in range(300):
        cancel = Cancel()
        told: SimpleQueue[bool] = SimpleQueue()
        waiting = Thread(target=lambda told=told, cancel=cancel: told.put(cancel.wait(20)))
        waiting.start()
        cancel.set()

        assert told.get(timeout=10)
        waiting.join(10)

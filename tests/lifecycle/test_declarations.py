"""A dispatcher does not start on a bad declaration: exit status 2, and one line that says where and what."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.program import RunProgram

BAD: Final = {
    "an_option_that_is_none": ("@task('k', retries=3)", "retries: there is no such option"),
    "a_slot_that_is_none": ("@task('k', slot='fiber')", "slot: expected 'thread' or 'process', got 'fiber'"),
    "no_time_at_all": ("@task('k', time_limit=0)", "time_limit: expected more than 0 "),
    "more_than_a_month": ("@task('k', time_limit=timedelta(days=31))", "time_limit: expected more than 0 and at most"),
    "no_attempt": ("@task('k', max_attempts=0)", "max_attempts: expected 1 to 100, got 0"),
    "too_many_attempts": ("@task('k', max_attempts=101)", "max_attempts: expected 1 to 100, got 101"),
    "no_backoff": ("@task('k', max_attempts=3, backoff=10)", "backoff: expected Backoff(first, factor, cap), got 10"),
    "a_backoff_that_shrinks": (
        "@task('k', max_attempts=3, backoff=Backoff(factor=0.5))",
        "backoff: expected a factor of 1 to 1000, got 0.5",
    ),
    "a_backoff_beyond_its_cap": (
        "@task('k', max_attempts=3, backoff=Backoff(first=20, cap=10))",
        "backoff: expected 0 <= first <= cap <= 2592000 seconds (30 days), got first 20, cap 10",
    ),
    "what_is_no_exception": ("@task('k', max_attempts=3, retry_on=SystemExit)", "retry_on: expected subclasses of"),
    "what_is_final": ("@task('k', max_attempts=3, retry_on=Failed)", "retry_on: Failed is never followed by another"),
    "a_backoff_for_nothing": ("@task('k', backoff=Backoff())", "backoff: means nothing without max_attempts of 2"),
    "a_retry_for_nothing": ("@task('k', retry_on=OSError)", "retry_on: means nothing without max_attempts of 2"),
    "a_crash_for_nothing": ("@task('k', on_crash='retry')", "on_crash: 'retry' needs max_attempts of 2 or more"),
    "a_crash_that_is_none": ("@task('k', on_crash='again')", "on_crash: expected 'fail' or 'retry', got 'again'"),
    "no_queue": ("@task('k', queue='')", "queue: the name of a queue has 1 to 255 bytes"),
    "no_word_on_results": ("@task('k', keep_result='no')", "keep_result: expected True or False, got 'no'"),
    "no_kind": ("@task('')", "the name of a kind has 1 to 255 bytes"),
    "a_kind_left_out": ("@task", 'expected the name of a kind, as in @task("report.build")'),
    "a_list": ("@task('k')", "an input is a JSON object, and list[int] is not", "input: list[int]"),
    "a_name_that_is_none": ("@task('k')", "NameError: name 'Nobody' is not defined", "input: 'Nobody'"),
    "a_type_that_is_no_json": ("@task('k')", "<class 'complex'> is not supported", "input: complex"),
    "a_default_that_is_no_json": (
        "@task('k')",
        "cannot be published: a number that is not finite (at /$defs/Most/properties/most/default)",
        "input: defstruct('Most', [('most', float, float('inf'))])",
    ),
    "nothing_taken": ("@task('k')", "expected parameters (input, context) or (input), got ()", ""),
    "an_option_for_a_context": ("@task('k')", "a second parameter gets the context", "input, dry_run=False"),
    "a_kind_of_somebody_else": (
        "@task('text.stats')",
        "is declared twice: by dispatcher.text_stats.",
    ),
}
"""Module to the decorator of its function, what is said of it, and the function's parameters."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    imports = "from datetime import timedelta\nfrom dispatcher import *; from msgspec import defstruct\n\n"
    for module, (decorator, _, *given) in BAD.items():
        parameters = given[0] if given else "input, context"
        (tmp_path / f"{module}.py").write_text(f"{imports}{decorator}\ndef body({parameters}):\n    pass\n")
    return tmp_path


def test_every_bad_declaration_is_named_with_its_place_and_nothing_starts(
    run_program: RunProgram, folder: Path
) -> None:
    program = run_program("dispatcher", "--tasks", *BAD, env={"PYTHONPATH": str(folder)}, ready=False)

    assert program.wait() == 2
    lines = dict(re.findall(r"^tasks module (\w+): (.*)$", program.output, re.MULTILINE))
    assert lines.keys() == BAD.keys()
    for module, (_, said, *_) in BAD.items():
        assert said in lines[module]
        assert f"{module}.body ({folder}/{module}.py:4)" in lines[module]
    assert len(program.output.splitlines()) == len(BAD)


@pytest.mark.parametrize("module", ["an_option_that_is_none", "a_kind_left_out", "a_list"])
def test_one_bad_declaration_is_enough(run_program: RunProgram, folder: Path, module: str) -> None:
    (folder / "good.py").write_text("from dispatcher import task\n@task('good')\ndef body(input): ...\n")

    program = run_program("dispatcher", "--tasks", "good", module, env={"PYTHONPATH": str(folder)}, ready=False)

    assert program.wait() == 2
    assert not program.saw("ready ")
    assert not program.saw("module good")


def test_two_tasks_of_one_kind_are_named_with_both_places(run_program: RunProgram, tmp_path: Path) -> None:
    for module in ("one", "other"):
        (tmp_path / f"{module}.py").write_text(
            "from dispatcher import task\n\n\n@task('k')\ndef body(input):\n    return 1\n"
        )

    program = run_program("dispatcher", "--tasks", "one", "other", env={"PYTHONPATH": str(tmp_path)}, ready=False)

    assert program.wait() == 2
    places = f"one.body ({tmp_path}/one.py:4) and by other.body ({tmp_path}/other.py:4)"
    assert program.saw(f"tasks module other: kind 'k' is declared twice: by {places}")


def test_a_module_that_cannot_be_imported_is_named_with_the_innermost_place_in_it(
    run_program: RunProgram, tmp_path: Path
) -> None:
    package = tmp_path / "myapp"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text("from myapp import models\n")
    (package / "models.py").write_text("import json\n\nSCHEMA = json.loads('{')\n")
    (tmp_path / "broken.py").write_text("import os\n\ndef\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "mute.py").write_text("class Mute(Exception):\n    __str__ = None\n\nraise Mute\n")

    program = run_program(
        "dispatcher",
        "--tasks",
        *("myapp.tasks", "broken", "leaves", "mute", "no.such.module"),
        env={"PYTHONPATH": str(tmp_path)},
        ready=False,
    )

    assert program.wait() == 2
    assert program.saw(f"(at {package}/models.py:3)")
    assert program.saw(f"(at {tmp_path}/broken.py:3)")
    assert program.saw(f"tasks module leaves: SystemExit: 0 (at {tmp_path}/leaves.py:2)")
    assert program.saw(f"tasks module mute: Mute: (its message cannot be read) (at {tmp_path}/mute.py:4)")
    assert program.saw("tasks module no.such.module: ModuleNotFoundError: No module named 'no'")

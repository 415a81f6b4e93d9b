"""The evidence: what a run writes can be checked from its files alone, and a byte that was changed is found."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evidence import sums
from evidence.play import play_step
from evidence.reconcile import claims_of
from evidence.run import finish, write_document
from evidence.steps import NAMES, all_steps, folder_of
from tests.support.program import ROOT
from tests.support.server import TestServer

PLAYED = ["queue-full", "accepted-is-not-succeeded"]
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def made(server: TestServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps, played on the suite's server; every other is left out, as `--only` does."""
    folder = tmp_path_factory.mktemp("evidence") / "made"
    folder.mkdir()
    steps = all_steps()
    plan = {"name": "made", "began_utc": "now", "ended_utc": "then", "steps": PLAYED}
    write_document(folder, "plan.json", {**plan, "left_out": [name for name in steps if name not in PLAYED]})
    for name in PLAYED:
        database = f"evidence_{name.replace('-', '_')}"
        server.value(f"create database {database}")
        assert play_step(steps[name], folder / folder_of(name), server.url(database), None, ROOT)
        server.value(f"drop database {database} with (force)")
    assert finish(folder, steps)
    return folder


@pytest.fixture
def evidence(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoiled."""
    return shutil.copytree(made, tmp_path / "made")


def checked(folder: Path) -> tuple[int, str]:
    """Check with nothing but the standard library, in a process of its own."""
    command = [sys.executable, "-S", "-m", "evidence", "check", str(folder)]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


def change(folder: Path, step: str, file: str, change: Change, which: Callable[[dict[str, Any]], bool]) -> None:
    """Change the first line of a file that is the one, and make the sums good again, as a forger would."""
    path = folder / folder_of(step) / file
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(next(line for line in lines if which(line)))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    sums.write(folder / sums.OF_THE_EVIDENCE, sums.of_folder(folder))


def test_what_was_made_is_checked_without_a_database_or_a_package(evidence: Path) -> None:
    status, said = checked(evidence)

    assert (status, said) == (0, "the evidence fits together; 2 steps passed\n")
    page = (evidence / "SUMMARY.md").read_text()
    assert "PASSED" in page
    assert "NOT_RUN: TLS" in page
    assert "NOT_RUN: step settings-refused" in page


def test_every_row_of_the_table_has_its_steps() -> None:
    assert list(all_steps()) == NAMES


def test_a_changed_byte_is_found(evidence: Path) -> None:
    file = next((evidence / folder_of("queue-full") / "programs").glob("*.stdout"))
    file.write_bytes(file.read_bytes() + b".")

    status, said = checked(evidence)

    assert status == 1
    assert f"{file.relative_to(evidence)} is not what it was" in said


def test_a_file_that_was_taken_away_or_slipped_in_is_found(evidence: Path) -> None:
    (evidence / folder_of("queue-full") / "effects").unlink()
    (evidence / "another").touch()

    status, said = checked(evidence)

    assert status == 1
    assert "effects is missing" in said
    assert "another has no sum" in said


def test_a_missing_step_is_found_though_the_sums_are_right(evidence: Path) -> None:
    shutil.rmtree(evidence / folder_of("queue-full"))
    sums.write(evidence / sums.OF_THE_EVIDENCE, sums.of_folder(evidence))

    status, said = checked(evidence)

    assert status == 1
    assert "step queue-full is missing" in said


def test_a_step_that_is_struck_from_the_plan_is_missed(evidence: Path) -> None:
    shutil.rmtree(evidence / folder_of("queue-full"))
    plan = json.loads((evidence / "plan.json").read_text())
    write_document(evidence, "plan.json", {**plan, "steps": ["accepted-is-not-succeeded"]})

    assert not finish(evidence, all_steps())


@pytest.mark.parametrize(
    ("step", "file", "which", "changed", "found"),
    [
        ("queue-full", "task.jsonl", {}, {"id": 77}, "every 202's id is a row"),
        ("queue-full", "task.jsonl", {}, {"state": "FAILED"}, "a state that was read as terminal is the row's"),
        ("queue-full", "http.jsonl", {"label": "third"}, {"status": 202}, "every 202's id is a row"),
        ("queue-full", "http.jsonl", {"label": "first"}, {"status": 503}, "every submit has the rows that its answers"),
        ("queue-full", "http.jsonl", {"label": "third"}, {"status": 500}, "202, 202, 503"),
        ("queue-full", "sql.jsonl", {"label": "while full"}, {"rows": []}, "two were open then"),
        ("accepted-is-not-succeeded", "sql.jsonl", {"label": "statistics"}, {"rows": []}, "SUCCEEDED 2/6/6 in SQL"),
    ],
)
def test_a_changed_answer_or_row_is_found_though_the_sums_are_right(
    evidence: Path, step: str, file: str, which: dict[str, Any], changed: dict[str, Any], found: str
) -> None:
    change(evidence, step, file, lambda line: line.update(changed), lambda line: which.items() <= line.items())

    status, said = checked(evidence)

    assert status == 1
    assert f"step {step}: its files say" in said
    assert found in said


def test_a_body_that_was_started_twice_is_found(evidence: Path) -> None:
    effects = evidence / folder_of("queue-full") / "effects"
    effects.write_text(2 * effects.read_text())

    claims = {each.says: each for each in claims_of(all_steps()["queue-full"], effects.parent)}

    assert not claims["no attempt was begun twice"].passed


def test_a_summary_that_says_more_than_the_files_is_found(evidence: Path) -> None:
    page = evidence / "SUMMARY.md"
    page.write_text(page.read_text().replace("2 of 2 steps", "39 of 39 steps"))
    sums.write(evidence / sums.OF_THE_EVIDENCE, sums.of_folder(evidence))

    status, said = checked(evidence)

    assert status == 1
    assert "SUMMARY.md says something else" in said


def test_a_step_that_failed_is_said_to_have_failed(evidence: Path) -> None:
    def refused(line: dict[str, Any]) -> None:
        line["status"] = 500

    change(evidence, "queue-full", "http.jsonl", refused, lambda line: line["label"] == "third")

    assert not finish(evidence, all_steps())
    page = (evidence / "SUMMARY.md").read_text()
    assert "FAILED in queue-full: 202, 202, 503" in page
    assert "| 04-queue-full | FAILED |" in page


def test_the_page_on_faults_names_every_step_and_no_other() -> None:
    text = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ") and line.count("|") == 5]

    named = [name.strip("` ") for row in rows[1:] for name in row.split(",")]

    assert ["archive", *named] == NAMES

"""`python -m bench`, small: that it measures, reports and makes its page, not how fast anything is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.page import rendered
from bench.record import read
from bench.targets import TARGETS
from tests.support.program import ROOT, environment

SUBJECTS = [
    ["drain", "text", "two", "submit", "bulk", "mixed", "crowd", "processes"],
    ["pickup", "backlog", "snapshot", "bound", "retention", "idle", "memory"],
]


def bench(*arguments: str | Path, path: str = os.environ["PATH"]) -> str:
    """Run it to its end and return what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env={**environment(), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("subjects", SUBJECTS, ids=" ".join)
def test_every_subject_is_measured_and_reported(subjects: list[str], tmp_path: Path) -> None:
    said = bench(*subjects, "--small", "--out", tmp_path)

    records = read(tmp_path)
    assert records.keys() == set(subjects)
    for record in records.values():
        assert f"## {record['title']}" in said
        assert all(record["rows"].values())
    aimed_at = [target for target in TARGETS if target.subject in records]
    assert [target.work for target in aimed_at if target.row not in records[target.subject]["rows"]] == []


@pytest.mark.parametrize(("subject", "figure"), [("peers", "tasks/s"), ("peer_pickup", "p50, ms")])
def test_a_peer_that_cannot_be_had_is_not_run(subject: str, figure: str, tmp_path: Path) -> None:
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "pgqueuer").write_text("where an environment should be made")

    said = bench(subject, "--small", "--peers-in", folder, "--out", tmp_path, path="/nowhere")

    rows = json.loads((tmp_path / f"{subject}.json").read_text())["rows"]
    assert {name: len(values) for name, values in rows.items() if name.endswith(figure)} == {
        f"pgtally, {figure}": 1,
        f"PgQueuer, {figure}": 0,
        f"Celery on Redis, {figure}": 0,
        f"graphile-worker, {figure}": 0,
    }
    assert said.count("NOT_RUN: ") == 3


def test_the_page_tells_every_target_and_what_was_not_run(tmp_path: Path) -> None:
    bench("idle", "--small", "--out", tmp_path)
    page = tmp_path / "page" / "performance.md"

    said = bench("report", tmp_path, "--page", page)

    lines = page.read_text().splitlines()
    rows = [line for line in lines if line.endswith("` |")]
    assert len(rows) == len(TARGETS)
    assert sum("| NOT_RUN |" in row for row in rows) == sum(target.subject != "idle" for target in TARGETS)
    assert "python -m bench submit" in said


def test_the_page_is_made_from_the_figures_beside_it() -> None:
    page = ROOT / "docs" / "performance.md"
    if not page.exists():
        pytest.skip("NOT_RUN: there is no page yet")

    assert rendered(page.with_suffix("")) == page.read_text(encoding="utf-8")

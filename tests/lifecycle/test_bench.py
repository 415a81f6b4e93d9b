"""`python -m bench`, small: that it measures and reports, not how fast anything is."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.program import ROOT, environment


def test_every_subject_is_measured_and_reported(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    small = [
        "--tasks",
        "300",
        "--slots",
        "8",
        "--repeat",
        "1",
        "--submits",
        "5",
        "--seconds",
        "0.3",
        "--crowd",
        "2",
        "--memory-tasks",
        "300",
    ]

    done = subprocess.run(
        [sys.executable, "-m", "bench", *small, "--json", report],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    tables = json.loads(report.read_text())["tables"]
    assert len(tables) == 6
    for table in tables:
        assert f"## {table['title']}" in done.stdout
        assert table["samples"] or table["figures"]

"""The example project, tested as whoever copies it would; and the examples of the page on testing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dispatcher.testing.tally import Tally
from sql.throwaway import BINARIES_VARIABLE
from tests.support.program import ROOT, environment

EXAMPLE = ROOT / "docs" / "examples"
PYTHON = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/testing.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)


def run_tests(folder: Path) -> str:
    """Run pytest in a folder, in an environment without settings; return what it said at its end. It must succeed."""
    env = environment({BINARIES_VARIABLE: os.environ.get(BINARIES_VARIABLE), "PYTHONDONTWRITEBYTECODE": "1"})
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_example_project_passes_its_own_tests() -> None:
    tests = [path.stem for path in (EXAMPLE / "shop" / "tests").glob("test_*.py")]

    said = run_tests(EXAMPLE)

    assert sorted(tests) == ["test_dispatcher", "test_images", "test_mails", "test_reports"]
    assert all(f"{name}.py" in said for name in tests)
    assert re.search(r"^=+ 13 passed in", said, re.MULTILINE)


def test_the_examples_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    tasks, tests = PYTHON
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "tasks.py").write_text(tasks)
    (tmp_path / "test_tasks.py").write_text(tests)

    assert re.search(r"^=+ 2 passed in", run_tests(tmp_path), re.MULTILINE)


def test_every_means_of_the_fixture_is_on_the_page() -> None:
    page = (ROOT / "docs/testing.md").read_text("utf-8")

    assert [name for name in vars(Tally) if not name.startswith("_") and f"`{name}(" not in page] == []


@pytest.mark.parametrize("page", ["docs/testing.md", "docs/examples/README.md"])
def test_the_pages_lead_to_files_that_are_there(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text("utf-8"))

    assert links
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []

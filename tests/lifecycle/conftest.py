"""A folder to run the service in, as a person would have it."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from tests.lifecycle.embedded import server_of
from tests.support.program import ROOT, Program, environment

# The Makefile's own drain is part of what is tested.
OWN_DRAIN = {"TALLY_DRAIN_SECONDS": None, "TALLY_DRAIN_RESERVE_SECONDS": None}


@pytest.fixture
def project() -> Iterator[Path]:
    """A folder that the embedded server's user can pass through; nothing may be left running in it."""
    folder = Path(tempfile.mkdtemp(prefix="tally-project-")).resolve()
    folder.chmod(0o755)
    yield folder
    left = server_of(folder).processes()
    server_of(folder).kill()
    shutil.rmtree(folder)
    assert not left, "the embedded server was left running"


class MakeRun(Protocol):
    def __call__(self, env: Mapping[str, str | None] | None = None) -> Program: ...


@pytest.fixture
def make_run(project: Path) -> Iterator[MakeRun]:
    """Start `make run` in a folder with this environment, and wait until all three are ready."""
    for name in ("Makefile", "Procfile"):
        shutil.copy(ROOT / name, project)
    (project / ".venv").symlink_to(sys.prefix)
    started: list[Program] = []

    def start(env: Mapping[str, str | None] | None = None) -> Program:
        # -o: the environment is there, whoever made it.
        command = ["make", "-o", ".venv/installed", "run"]
        program = Program(command, environment({**OWN_DRAIN, **(env or {})}), project)
        started.append(program)
        for name in ("db", "web", "dispatcher"):
            program.wait_for(f"ready {name} ", seconds=40)
        return program

    yield start
    for program in started:
        print(program.output)
        program.tidy_up()

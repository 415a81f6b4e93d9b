"""An earlier commit's programs, from its own code, and the current code with a migration that is still to come."""

import io
import os
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.database import Database, drop
from tests.support.program import ROOT, RunProgram, programs
from tests.support.server import TestServer

EARLIER: Final = "bccfad7"
"""The last commit of schema 2."""


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier commit's code, unpacked."""
    # Whoever owns the checkout: what is read from it is only run here.
    archive = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", ROOT, "archive", EARLIER], check=False, capture_output=True
    )
    if archive.returncode:
        said = f"NOT_RUN: there is no commit {EARLIER} to upgrade from: {archive.stderr.decode().strip()}"
        if os.environ.get("CI"):
            pytest.fail(said)
        pytest.skip(said)
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def earlier_template(server: TestServer, earlier: Path) -> Database:
    """A database that the earlier code has migrated."""
    server.bring_up()
    made = Database(server, "tally_earlier")
    server.value(f"create database {made.name}")
    with programs(made.url, earlier) as run_earlier:
        assert run_earlier("sql", "migrate", ready=False).wait() == 0
    return made


@pytest.fixture
def earlier_database(server: TestServer, earlier_template: Database) -> Iterator[Database]:
    """A fresh clone of it."""
    server.bring_up()
    made = Database(server, f"tally_{secrets.token_hex(4)}")
    server.value(f"create database {made.name} template {earlier_template.name}")
    with made.connections:
        yield made
    drop(made)


RunLater = Callable[[str], RunProgram]


@pytest.fixture
def run_later(database: Database, tmp_path: Path) -> Iterator[RunLater]:
    """Run the `sql` package as it will be once it has this migration, 9999: `run_later("alter table …")("sql", …)`."""
    folder = tmp_path / "later"
    shutil.copytree(ROOT / "sql", folder / "sql", ignore=shutil.ignore_patterns("__pycache__"))

    with programs(database.url, folder) as run:

        def having(migration: str) -> RunProgram:
            (folder / "sql" / "migrations" / "9999_later.sql").write_text(migration)
            return run

        yield having

"""What the fault tests share: the service over HTTP, and a server that is whole again for the next test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bodies import Bodies
from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher, RunProgram
from tests.support.server import TestServer
from tests.support.service import Service


@pytest.fixture
def mended(server: TestServer, run_program: RunProgram) -> Iterator[None]:
    """Bring the suite's server up, whatever the test did to it, before its programs are asked to end."""
    yield
    server.bring_up()


@pytest.fixture
def service(
    database: Database, run_program: RunProgram, run_dispatcher: RunDispatcher, mended: None, tmp_path: Path
) -> Service:
    """Both programs, not yet started, and the book of what was asked of them."""
    return Service(database, run_program, run_dispatcher, tmp_path)


@pytest.fixture
def bodies(ledger: Ledger, tmp_path: Path) -> Iterator[Bodies]:
    """Tasks that run until their gate opens, which it does at the latest when the test is over."""
    made = Bodies(ledger, tmp_path)
    yield made
    made.gate.touch()

"""The service with PgBouncer before its web processes: dispatchers and migrations go to the server itself."""

from collections.abc import Iterator, Mapping

import pytest

from tests.pooler.bouncer import Bouncer, started_bouncer
from tests.support.database import Database
from tests.support.program import Program, RunProgram, programs
from tests.support.server import TestServer


@pytest.fixture
def bouncer(database: Database) -> Iterator[Bouncer]:
    """A PgBouncer of the test's own, whole again before it is stopped."""
    with started_bouncer(database) as running:
        yield running


@pytest.fixture
def run_program(database: Database, bouncer: Bouncer) -> Iterator[RunProgram]:
    """Start `python -m module` with both URLs, as docs/pgbouncer.md tells."""
    with programs(bouncer.url) as run:

        def run_program(
            module: str, *args: str, env: Mapping[str, str | None] | None = None, ready: bool = True
        ) -> Program:
            return run(module, *args, env={"DATABASE_DIRECT_URL": database.url, **(env or {})}, ready=ready)

        yield run_program


@pytest.fixture
def mended(server: TestServer, bouncer: Bouncer, run_program: RunProgram) -> Iterator[None]:
    """Bring the server and PgBouncer up, whatever the test did to them, before the programs are asked to end."""
    yield
    server.bring_up()
    bouncer.bring_up()

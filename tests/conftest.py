"""The suite's fixtures; what they make is in tests/support/, a file each."""

import signal
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from sql.throwaway import binaries
from tests.support.database import Database, cloned_database, drop
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher, RunProgram, programs
from tests.support.proxy import Proxy
from tests.support.server import TestServer, started_server, version
from tests.support.service import Service

# A shell that starts this in the background has SIGINT ignored, and whatever is started here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

_FAILED = pytest.StashKey[bool]()


def pytest_report_header() -> str:
    libpq = psycopg.pq.version_pretty(psycopg.pq.version())
    return f"server: {version()}; driver: psycopg {psycopg.__version__}, libpq {libpq}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    # A worker beside others can't send what is not UTF-8, and some tests are about just that.
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    """The suite's own server."""
    with started_server(binaries()) as running:
        yield running


@pytest.fixture
def database(server: TestServer, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh clone of the migrated template; kept, and named in the report, when the test fails."""
    with cloned_database(server) as clone:
        yield clone
    if request.node.stash.get(_FAILED, False):
        (server.folder / "keep").touch()
        print(f"--- kept: database {clone.name}, in the data folder {server.folder}/server/data")
    else:
        drop(clone)


@pytest.fixture
def run_program(database: Database) -> Iterator[RunProgram]:
    """Start `python -m module` as a real process on the test's database."""
    with programs(database.url) as run:
        yield run


@pytest.fixture
def run_dispatcher(run_program: RunProgram) -> RunDispatcher:
    """Start a dispatcher that knows the tests' kinds: `run_dispatcher("--slots", "4", env=…)`."""
    return partial(run_program, "dispatcher", "--tasks", "tests.support.tasks")


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
def ledger(database: Database) -> Ledger:
    """What the test submits, and what becomes of it."""
    return Ledger(database)


@pytest.fixture
def proxy() -> Iterator[Callable[[str, int], Proxy]]:
    """Make TCP proxies, closed when the test ends."""
    made: list[Proxy] = []

    def make(target_host: str, target_port: int) -> Proxy:
        made.append(Proxy(target_host, target_port))
        return made[-1]

    yield make
    for each in made:
        each.close()

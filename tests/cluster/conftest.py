"""The cluster, made at the first test that asks and whole for each, and the service on a database of it."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, is_short, query, started_cluster, tell_all
from tests.cluster.fleet import Fleet
from tests.cluster.looking import ClusterDatabase
from tests.conftest import _FAILED
from tests.support.program import RunDispatcher, RunProgram
from tests.support.service import Service

USER = "tally"
SHORT = {"test_a_primary_that_is_killed", "test_a_planned_switchover"}
_SAID: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With TALLY_TEST_CLUSTER=short, run one kill and one switchover."""
    if is_short():
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent) and item.name not in SHORT:
                item.add_marker(pytest.mark.skip(reason="NOT_RUN: TALLY_TEST_CLUSTER=short"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each event cost."""
    if _SAID:
        terminalreporter.section("what the clients saw of each event")
        for line in _SAID:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    """Three servers and etcd."""
    with started_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster, whole; when the test fails, its logs are shown and kept."""
    running_cluster.mend()
    yield running_cluster
    if request.node.stash.get(_FAILED, False):
        tell_all(running_cluster)
    # Before our programs are asked to end, which they can do only with a database.
    running_cluster.mend()


@pytest.fixture
def database(running_cluster: Cluster) -> Iterator[ClusterDatabase]:
    """A fresh database, migrated, that belongs to a role without privileges: all that our programs need."""
    running_cluster.await_whole()
    name = f"tally_{secrets.token_hex(4)}"
    if query(running_cluster.primary, f"select count(*) from pg_roles where rolname = '{USER}'") == [(0,)]:
        query(running_cluster.primary, f"create role {USER} login")
    query(running_cluster.primary, f"create database {name} owner {USER}")
    made = ClusterDatabase(running_cluster.url(name, USER), name)
    with made.connections:
        made.migrate()
        yield made


@pytest.fixture
def service(
    database: ClusterDatabase,
    run_program: RunProgram,
    run_dispatcher: RunDispatcher,
    cluster: Cluster,
    tmp_path: Path,
) -> Service:
    """Our programs, not yet started, and the book of what was asked of them."""
    return Service(database, run_program, run_dispatcher, tmp_path)


@pytest.fixture
def said() -> list[str]:
    """What is printed after the tests."""
    return _SAID


@pytest.fixture
def fleet(service: Service, said: list[str]) -> Iterator[Fleet]:
    """Two web processes and two dispatchers, running."""
    fleet = Fleet(service)
    fleet.start()
    yield fleet
    said.extend(str(event) for event in fleet.events)

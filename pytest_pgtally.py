"""The pytest plugin of pgtally: fixtures for whoever asks for them, and nothing for all others.

Every pytest run of an environment that has pgtally imports this module. So it stands outside the packages, and imports
none of them before a fixture is asked for.

`tally_server` is the session's: a PostgreSQL server that it makes, or an existing one that it is told of, and in it a
migrated template. `tally` is a test's own clone of that. With pytest-xdist each worker has its own of both.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dispatcher.testing.databases import Databases
    from dispatcher.testing.tally import Tally


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "tally_server_url",
        "URL of a PostgreSQL server in which the fixture `tally` makes and drops databases of its own; without it (and "
        "without TALLY_TEST_SERVER_URL in the environment) it makes a server",
        default="",
    )


@pytest.fixture(scope="session")
def tally_server(pytestconfig: pytest.Config) -> Iterator["Databases"]:
    """The session's server, with a migrated template; gone afterwards, however the session ends."""
    from dispatcher.testing.keeper import URL_VARIABLE, kept  # noqa: PLC0415

    given = os.environ.get(URL_VARIABLE) or str(pytestconfig.getini("tally_server_url"))
    with kept(given) as databases:
        yield databases


@pytest.fixture
def tally(tally_server: "Databases", monkeypatch: pytest.MonkeyPatch) -> Iterator["Tally"]:
    """A database of the test's own, to which DATABASE_URL leads while the test runs, and what runs its tasks."""
    from dispatcher.testing.tally import tally_on  # noqa: PLC0415

    with tally_server.clone() as url:
        monkeypatch.setenv("DATABASE_URL", url)
        monkeypatch.delenv("DATABASE_DIRECT_URL", raising=False)
        with tally_on(url) as made:
            yield made

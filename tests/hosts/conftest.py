"""A web, two dispatchers and the database on hosts of their own. The tests themselves sit at the web's."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from sql.throwaway import binaries, fast_place
from tests.hosts.network import NETWORK, Host, Network
from tests.support.database import Database
from tests.support.program import RunProgram, programs
from tests.support.server import TestServer
from tests.support.tools import tool


class ServerOnHost(TestServer):
    """A server that listens on its host's address only; the tests reach it by its Unix socket, wherever they are."""

    def __init__(self, folder: Path, programs: Path, host: Host) -> None:
        super().__init__(folder, programs)
        self._host = host
        rules = folder / "pg_hba.conf"
        rules.write_text(f"local all all trust\nhost all all {NETWORK} trust\n")
        settings = {**self._server.settings, "listen_addresses": host.address, "hba_file": str(rules)}
        self._server = replace(self._server, settings=settings)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self._server.sockets))}&port={self.port}"

    def url_for_hosts(self, database: str) -> str:
        return f"postgresql://postgres@{self._host.address}:{self.port}/{database}"

    def start(self) -> None:
        with self._host.namespace.entered():
            super().start()


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    for name in ("ip", "tc"):
        tool(name)
    made = Network("database", "web", "first", "second")
    yield made
    made.close()


@pytest.fixture(scope="session")
def server(network: Network) -> Iterator[ServerOnHost]:
    folder = Path(tempfile.mkdtemp(prefix="tally-test-", dir=fast_place()))
    folder.chmod(0o755)
    made = ServerOnHost(folder, binaries(), network["database"])
    try:
        made.make()
        yield made
    finally:
        made.stop("immediate")
        shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _at_the_web_s_host(network: Network) -> Iterator[None]:
    """Whatever the test's thread starts or connects to, it does from there; files are the same everywhere."""
    with network["web"].namespace.entered():
        yield


@pytest.fixture
def run_program(server: ServerOnHost, database: Database, _at_the_web_s_host: None) -> Iterator[RunProgram]:
    with programs(server.url_for_hosts(database.name)) as run:
        yield run


@pytest.fixture
def cut_off(network: Network, run_program: RunProgram) -> Iterator[list[Host]]:
    """Hosts to be mended before their programs are asked to end, whatever the test came to."""
    cut: list[Host] = []
    yield cut
    for host in cut:
        host.mend()

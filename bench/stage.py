"""A server of the bench's own, a database on it, and our two programs as processes."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from sql import statement
from sql.account import server_account
from sql.binaries import installed_binaries, reachable
from sql.connect import Connection, connect
from sql.migrate import migrate
from sql.server import SUPERUSER, Server

ROOT: Final = Path(__file__).resolve().parents[1]
MINUTE: Final = timedelta(seconds=60)

SERVER: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    # A crowd of dispatchers has five sessions each; their claims are counted.
    "max_connections": "200",
    "track_functions": "pl",
}


class Stage:
    """Where one run is measured. `query` runs one of `sql/queries/`; the programs print their addresses."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.connection = connect(url, name="bench", connect_timeout=MINUTE, statement_timeout=MINUTE)

    def query(self, name: str, **parameters: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement(f"queries/{name}"), parameters)
        return cursor.fetchall() if cursor.description else []

    def run(self, name: str, **parameters: object) -> tuple[Any, ...]:
        """Run one of `bench/sql/` and return its first row."""
        text = Path(__file__).with_name("sql").joinpath(f"{name}.sql").read_bytes()
        cursor = self.connection.execute(text, parameters or None)
        return (cursor.fetchone() if cursor.description else None) or ()

    def drained(self) -> None:
        """Wait until no task is open."""
        while self.run("open") != (0,):
            time.sleep(0.05)

    def connect(self) -> Connection:
        return connect(self.url, name="bench", connect_timeout=MINUTE, statement_timeout=MINUTE)

    def empty(self) -> None:
        """Remove every task, and what the removed ones would cost the next measurement."""
        self.run("empty")
        self.connection.execute(b"vacuum analyze tally.dispatcher")

    @contextmanager
    def program(self, module: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Run one of our programs; yields it and its ready line. It must end with 0."""
        environment = {**os.environ, "DATABASE_URL": self.url, "PYTHONPATH": str(ROOT), "PORT": "0"}
        environment["TALLY_LOG_LEVEL"] = "warning"
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout
            ready = process.stdout.readline()
            yield process, ready
        finally:
            process.terminate()
            process.communicate(timeout=60)
        assert process.returncode == 0, f"{module} ended with {process.returncode}"

    @contextmanager
    def dispatcher(self, slots: int) -> Iterator[subprocess.Popen[str]]:
        with self.program("dispatcher", "--slots", str(slots), "--tasks", "bench.kinds") as (process, _):
            yield process

    @contextmanager
    def web(self) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
        with self.program("falcon_app") as (process, ready):
            found = re.search(r"listen=(\S+):(\d+)", ready)
            assert found, ready
            yield process, (found[1], int(found[2]))


@contextmanager
def stage() -> Iterator[Stage]:
    """Make a server with fsync on, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tally-bench-"))
    folder.chmod(0o755)
    owner = server_account()
    for name in ("server", "programs"):
        (folder / name).mkdir(mode=0o755 if name == "programs" else 0o700)
    if owner:
        os.chown(folder / "server", owner.pw_uid, owner.pw_gid)
    server = Server(
        folder=folder / "server",
        binaries=reachable(installed_binaries(), owner, folder / "programs"),
        owner=owner,
        sockets=folder / "server",
        settings={"listen_addresses": "", **SERVER},
    )
    server.make()
    server.start()
    try:
        url = f"postgresql://{SUPERUSER}@/postgres?host={folder / 'server'}"
        with connect(url, name="bench", connect_timeout=MINUTE, statement_timeout=MINUTE) as connection:
            migrate(connection)
        made = Stage(url, folder)
        made.query("set_max_open", queue="default", max_open=None)
        with made.connection:
            yield made
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)

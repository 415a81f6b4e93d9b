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
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from sql import statement
from sql.account import server_account
from sql.binaries import installed_binaries, reachable
from sql.connect import Connection, connect
from sql.migrate import migrate
from sql.server import SUPERUSER, Server

ROOT: Final = Path(__file__).resolve().parents[1]
MINUTE: Final = timedelta(seconds=60)
Address: TypeAlias = tuple[str, int]

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

    def __init__(self, url: str, folder: Path, peers_in: Path | None = None) -> None:
        self.url = url
        self.folder = folder
        self.peers_in = peers_in
        self.connection = self.connect()

    def query(self, name: str, **parameters: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement(f"queries/{name}"), parameters)
        return cursor.fetchall() if cursor.description else []

    def run(self, name: str, **parameters: object) -> tuple[Any, ...]:
        """Run one of `bench/sql/` and return its first row."""
        return next(iter(self.rows(name, **parameters)), ())

    def rows(self, name: str, **parameters: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(text(name), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def connect(self) -> Connection:
        return connect(self.url, name="bench", connect_timeout=MINUTE, statement_timeout=2 * MINUTE)

    def empty(self) -> None:
        """Remove every task, and what the removed ones would cost the next measurement."""
        self.run("empty")
        self.connection.execute(b"vacuum analyze tally.dispatcher, tally.queue")

    def fill(self, tasks: int, *, kind: str = "noop", input_text: str = "{}", queue: str = "default") -> None:
        """Queue so many tasks, past admission; then let the server tidy up, so that it won't while we measure."""
        self.run("fill", tasks=tasks, kind=kind, input=input_text, queue=queue)
        self.settle()

    def settle(self) -> None:
        self.connection.execute(b"vacuum analyze tally.task")
        self.connection.execute(b"checkpoint")

    def drained(self, seconds: float = 300, every: float = 0.05) -> None:
        """Wait until no task is open."""
        end = time.monotonic() + seconds
        while self.run("open") == (True,):
            assert time.monotonic() < end, f"tasks are still open after {seconds:g} s"
            time.sleep(every)

    @contextmanager
    def commits_of_5_ms(self) -> Iterator[None]:
        """Let every commit wait for 5 ms, as on a disk that takes so long."""
        self._set("commit_delay = 5000", "commit_siblings = 0")
        try:
            yield
        finally:
            self._set("commit_delay = default", "commit_siblings = default")

    def _set(self, *settings: str) -> None:
        for each in settings:
            self.connection.execute(f"alter system set {each}".encode())
        self.connection.execute(b"select pg_reload_conf()")

    @contextmanager
    def program(self, module: str, *arguments: str, **environ: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Run one of our programs; yields it and its ready line. It must end with 0."""
        own = {"DATABASE_URL": self.url, "PYTHONPATH": str(ROOT), "PORT": "0", "TALLY_LOG_LEVEL": "warning"}
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, **own, **environ},
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
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, f"{module} ended with {process.returncode}"

    @contextmanager
    def dispatcher(self, slots: int, kinds: str = "bench.kinds", **environ: str) -> Iterator[int]:
        """Run a dispatcher that knows these kinds; yields its process id once it is ready."""
        arguments = ("--slots", str(slots), "--tasks", kinds)
        with self.program("dispatcher", *arguments, **environ) as (process, _):
            yield process.pid

    @contextmanager
    def web(self, module: str = "falcon_app", *arguments: str) -> Iterator[tuple[int, Address]]:
        """Run the web, or something in its place; yields process id and address once it is ready."""
        with self.program(module, *arguments) as (process, ready):
            found = re.search(r"listen=(\S+):(\d+)", ready)
            assert found, ready
            yield process.pid, (found[1], int(found[2]))


@cache
def text(name: str) -> bytes:
    """Return the text of one of `bench/sql/`, read once."""
    return Path(__file__).with_name("sql").joinpath(f"{name}.sql").read_bytes()


@contextmanager
def stage(peers_in: Path | None = None) -> Iterator[Stage]:
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
        made = Stage(url, folder, peers_in)
        made.query("set_max_open", queue="default", max_open=None)
        with made.connection:
            yield made
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)

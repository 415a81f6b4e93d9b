"""A real PgBouncer in transaction mode before the suite's server: started, killed, frozen, told what to do."""

import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

import psycopg
from psycopg.abc import QueryNoTemplate

from sql.account import private_folder, server_account
from sql.server import SUPERUSER
from tests.support.database import Database
from tests.support.tools import tool
from tests.support.waiting import wait_until

EPHEMERAL_FROM: Final = 32768
"""Linux gives out the ports from here on by itself, one of ours perhaps while PgBouncer is away."""

# docs/pgbouncer.md shows the same; what differs here is a place, a port, or small for a test's sake.
SETTINGS: Final = {
    "pool_mode": "transaction",
    "default_pool_size": "4",
    "server_login_retry": "1",
    "query_wait_timeout": "3",
    "auth_type": "trust",
    "auth_file": "users",
    "admin_users": SUPERUSER,
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
}


class Bouncer:
    """PgBouncer on 127.0.0.1:`port`, before one database of the server at `target`, in a folder of its own."""

    def __init__(self, database: Database) -> None:
        self.port: int = _free_port()
        self.target: int = database.server.port
        self.database = database.name
        self._settings = dict(SETTINGS)
        self._owner = server_account()
        self._folder = private_folder(database.server.folder / f"pgbouncer-{self.port}", self._owner)
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<Bouncer {self.port} to {self.target} {'running' if self.running else 'away'}>"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    @property
    def url(self) -> str:
        return self._url(self.database)

    def _url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def write_settings(self, **changes: str) -> None:
        """Write the ini file; what runs takes it up at RELOAD."""
        self._settings |= changes
        given = {**self._settings, "listen_port": str(self.port)}
        lines = [f"{name} = {value}" for name, value in given.items()]
        databases = f"{self.database} = host=127.0.0.1 port={self.target}"
        (self._folder / "users").write_text(f'"{SUPERUSER}" ""\n')
        (self._folder / "ini").write_text("\n".join(["[databases]", databases, "[pgbouncer]", *lines, ""]))

    def start(self) -> None:
        """Start it, as another user than root, and wait until it takes connections."""
        if self.running:
            return
        self.write_settings()
        owner = {"user": self._owner.pw_uid, "group": self._owner.pw_gid} if self._owner else {}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [tool("pgbouncer"), "ini"],
                cwd=self._folder,
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **cast("dict[str, Any]", owner),
            )
        wait_until(self._answers, f"{self} takes connections", seen=lambda: self.log)

    def stop(self) -> None:
        """End it as an administrator does: it asks nobody, and its clients are told."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def bring_up(self) -> None:
        """Undo what a test did to it."""
        self.thaw()
        self.start()

    def console(self, command: str) -> list[dict[str, Any]]:
        """Give a command to the admin console; it speaks the simple protocol only."""
        with psycopg.connect(self._url("pgbouncer"), autocommit=True, connect_timeout=10) as connection:
            cursor = psycopg.ClientCursor(connection, row_factory=psycopg.rows.dict_row)
            cursor.execute(cast(QueryNoTemplate, command))
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        assert self.running, f"PgBouncer ended: {self.log}"
        with suppress(psycopg.OperationalError):
            return bool(self.console("show version"))
        return False

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        self._send(signal.SIGCONT)
        self._send(number)
        if self._process is not None:
            self._process.wait(20)


def _free_port() -> int:
    while True:
        port = random.randrange(20_000, EPHEMERAL_FROM)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextmanager
def started_bouncer(database: Database) -> Iterator[Bouncer]:
    """Start a PgBouncer before this database; its log is shown when the test fails."""
    bouncer = Bouncer(database)
    try:
        bouncer.start()
        yield bouncer
    finally:
        bouncer.stop()
        print(f"--- {bouncer}\n{bouncer.log}")

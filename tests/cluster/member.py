"""One member of the cluster: Patroni and its PostgreSQL on a machine that can lose its power, or be frozen."""

import http.client
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sql.account import private_folder
from sql.server import SUPERUSER
from tests.cluster.machine import descendants, kill_descendants, send
from tests.support.program import ROOT
from tests.support.tools import tool
from tests.support.waiting import wait_until

SCOPE: Final = "tally"


def as_account(owner: pwd.struct_passwd | None, command: list[str]) -> list[str]:
    """Return the command run by this account. Its one privilege: the suite's Python may be where only root can read."""
    if owner is None:
        return command
    privilege = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    ids = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    return [tool("setpriv"), *ids, *privilege, *command]


def start_machine(owner: pwd.struct_passwd | None, command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command as a machine, with its output at the end of `log`; it falls when its stdin is closed."""
    with log.open("ab") as output:
        return subprocess.Popen(
            as_account(owner, [sys.executable, "-m", "tests.cluster.machine", *command]),
            cwd=ROOT,
            # Its user would leave compiled files behind in our folders.
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@dataclass
class Member:
    """A machine's place and addresses; what runs on it is looked up each time."""

    name: str
    folder: Path
    binaries: Path
    owner: pwd.struct_passwd | None
    port: int
    rest_port: int
    etcd_port: int
    first_settings: Mapping[str, Any]
    _machine: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<Member {self.name} port={self.port} processes={len(self.processes())}>"

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def make(self) -> None:
        """Write its configuration; Patroni makes the rest."""
        configuration = private_folder(self.folder, self.owner) / "patroni.yml"
        configuration.write_text(json.dumps(self._configuration(), indent=1))

    def _configuration(self) -> dict[str, Any]:
        """Return Patroni's settings. JSON is YAML."""
        everybody = "127.0.0.1/32 trust"
        return {
            "scope": SCOPE,
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.rest_port}", "connect_address": f"127.0.0.1:{self.rest_port}"},
            "etcd3": {"host": f"127.0.0.1:{self.etcd_port}"},
            "bootstrap": {
                "dcs": self.first_settings,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.folder / "data"),
                "bin_dir": str(self.binaries),
                "pgpass": str(self.folder / "pgpass"),
                "authentication": {each: {"username": SUPERUSER} for each in ("superuser", "replication", "rewind")},
                "pg_hba": [f"host all all {everybody}", f"host replication all {everybody}"],
                "basebackup": [{"checkpoint": "fast"}],
                "parameters": {
                    "unix_socket_directories": str(self.folder),
                    "log_line_prefix": "%m [%p] %a ",
                    # In the data folder: what a killed server leaves behind goes with it.
                    "dynamic_shared_memory_type": "mmap",
                },
            },
        }

    def start(self) -> None:
        """Switch the machine on."""
        patroni = [sys.executable, "-m", "patroni", str(self.folder / "patroni.yml")]
        self._machine = start_machine(self.owner, patroni, self.log)

    def processes(self) -> list[int]:
        """Return what runs on this machine: Patroni and, if it runs, the server with its backends."""
        return [] if self._machine is None else descendants(self._machine.pid)

    def server_processes(self) -> list[int]:
        return [pid for pid in self.processes() if _title(pid).partition(" ")[0].rpartition("/")[2] in _SERVER]

    def lose_power(self) -> None:
        """Kill everything at once."""
        if self._machine is not None:
            kill_descendants(self._machine.pid)
            self._wait_until_off()

    def kill_server(self) -> None:
        """Kill the server, every process of it, and leave Patroni, which sees that."""
        send(self.server_processes(), signal.SIGKILL)

    def freeze(self, only: Callable[[str], bool] = bool) -> list[int]:
        """Stop every process in its tracks, or those with such titles; what is open stays open, nothing answers."""
        frozen: list[int] = []
        # Once more while there are new ones: a process may have begun another before it was stopped.
        while new := [pid for pid in self.processes() if pid not in frozen and only(_title(pid))]:
            send(new, signal.SIGSTOP)
            frozen += new
        return frozen

    def freeze_sending(self) -> None:
        """Stop what sends to the standbys: nothing more leaves this server, and nobody can tell."""
        assert self.freeze(only=_titled("walsender")), f"{self} sends to nobody"

    def freeze_receiving(self) -> None:
        """Stop what receives from the primary: what is sent arrives here, and is not confirmed."""
        assert self.freeze(only=_titled("walreceiver")), f"{self} receives from nobody"

    def thaw(self) -> None:
        send(self.processes(), signal.SIGCONT)

    def thaw_server(self) -> None:
        """Let the server run on, without Patroni: it does not know what has become of the cluster."""
        send(self.server_processes(), signal.SIGCONT)

    def stop(self, seconds: float = 30) -> None:
        """Shut the server down in good order, and switch the machine off."""
        if self._machine is None:
            return
        self.thaw()
        servers = self.server_processes()
        send([pid for pid in self.processes() if pid not in servers], signal.SIGTERM)
        try:
            wait_until(lambda: not self.server_processes(), f"{self} has shut down", seconds)
        finally:
            # Patroni itself, which may hang at its end, has nothing left to do.
            self.lose_power()

    def _wait_until_off(self) -> None:
        assert self._machine is not None
        self._machine.wait(20)
        if self._machine.stdin:
            self._machine.stdin.close()
        self._machine = None

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, seconds: float = 2) -> tuple[int, Any]:
        """Ask Patroni; returns the status and what it says, 0 and nothing where it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.rest_port, timeout=seconds)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def role(self) -> str | None:
        """Return the part that Patroni says its running server plays: `primary` or `replica`."""
        _, said = self.ask("GET", "/patroni")
        return str(said["role"]) if isinstance(said, dict) and said.get("state") == "running" else None

    def has_heard_since(self, moment: float) -> bool:
        """Has Patroni read since this moment of the clock what is kept for the whole cluster?"""
        _, said = self.ask("GET", "/patroni")
        return isinstance(said, dict) and said["dcs_last_seen"] > moment


_SERVER: Final = {"postgres", "postgres:"}


def _titled(kind: str) -> Callable[[str], bool]:
    return lambda title: title.startswith(f"postgres: {SCOPE}: {kind} ")


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""

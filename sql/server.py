"""A PostgreSQL server that is ours, in a folder that only its user can enter: made, started, stopped, killed.

The embedded server is one, the test suite's another. The folder holds `data` and `log`. Its processes are known by
what they call themselves: the first by its command line, the others by `cluster_name` in their titles. (Their
working folder would tell as well, but root in a container may not read it.) Settings go on the command line, and
nothing but PostgreSQL itself writes into the folder.
"""

import contextlib
import hashlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from sql.account import ServerFault, run
from sql.binaries import major_version

SUPERUSER: Final = "postgres"
Mode = Literal["smart", "fast", "immediate"]
_PROC: Final = Path("/proc")
_HAS_PROC: Final = (_PROC / "self").exists()
_SIGNALS: Final = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


@dataclass(frozen=True)
class Server:
    """A server's place and its settings; whether it runs is looked up each time."""

    folder: Path
    binaries: Path
    owner: pwd.struct_passwd | None
    sockets: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def name(self) -> str:
        return "tally-" + hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]

    @property
    def made_by(self) -> int | None:
        """The major version that the data folder is for; None where there is none yet."""
        try:
            return int((self.data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None

    @property
    def is_running(self) -> bool:
        first = self._first_process()
        return first is not None and self._is_ours(_command_line(first))

    def make(self, *, durable: bool = True, give_up: Callable[[], bool] = lambda: False) -> None:
        """Create the data folder, whole or not at all, in UTF-8 and with no locale of this machine."""
        unfinished = self.folder / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        command = ["--encoding=UTF8", "--locale=C", "--auth=trust", f"--username={SUPERUSER}"]
        if major_version(self.binaries, self.owner) >= 17:
            command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if not durable:
            command.append("--no-sync")
        run([self.binaries / "initdb", "--pgdata", unfinished, *command], self.owner, give_up=give_up)
        unfinished.rename(self.data)

    def start(self, *, seconds: float = 300, give_up: Callable[[], bool] = lambda: False) -> None:
        """Start the server and wait until it takes connections; one that runs already is taken over.

        Raises `ServerFault`, and `GivenUp` soon after `give_up` says so: the server may be running then.
        """
        if self.is_running:
            return
        self._clear()
        shown = {"cluster_name": self.name, "unix_socket_directories": str(self.sockets), **self.settings}
        options = shlex.join(part for key, value in shown.items() for part in ("-c", f"{key}={value}"))
        command: list[str | Path] = ["start", "--silent", "--wait", f"--timeout={seconds:.0f}", "--pgdata", self.data]
        try:
            run(
                [self.binaries / "pg_ctl", *command, "--log", self.folder / "log", "--options", options],
                self.owner,
                seconds=seconds + 5,
                give_up=give_up,
            )
        except ServerFault as fault:
            raise ServerFault(f"{fault}; {self.last_words()}") from None

    def _clear(self) -> None:
        """Remove what a killed server left: its last processes, then its lock files where PostgreSQL would not.

        It won't while there is a process of the number in them: another that was given the number, or the dead
        one itself where nobody waits for it, as in a container without an init. Any server it leaves alone.
        """
        self.kill()
        first = self._first_process()
        if first is not None and _exists(first) and "postgres" not in _command_line(first):
            for lock in (self.data / "postmaster.pid", *self.sockets.glob(".s.PGSQL.*.lock")):
                lock.unlink(missing_ok=True)

    def stop(self, mode: Mode = "fast", *, seconds: float = 60) -> None:
        """Stop the server and wait until all of it is gone. Raises `ServerFault` when that takes too long."""
        first = self._first_process()
        if first is None or not self.is_running:
            # It may be so young that it has not written its lock file, or have died and left some behind.
            self.kill()
            return
        self.thaw()
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, _SIGNALS[mode])
        self._wait_until_gone(seconds)

    def kill(self) -> None:
        """Kill every process of the server, whether or not the first of them still lives."""
        end = time.monotonic() + 20
        while self.processes():
            if time.monotonic() > end:
                raise ServerFault(f"the server in {self.folder} can't be killed")
            self._signal(signal.SIGKILL)
            time.sleep(0.02)

    def freeze(self) -> None:
        """Stop every process of the server in its tracks; connections stay open and nothing answers."""
        frozen: set[int] = set()
        # Once more while there are new ones: the first process may have begun another before it was stopped.
        while new := set(self.processes()) - frozen:
            self._signal(signal.SIGSTOP)
            frozen |= new

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def last_words(self) -> str:
        """Return the end of the server's log, for a message."""
        try:
            return " ".join((self.folder / "log").read_text(errors="replace").splitlines()[-3:])
        except OSError:
            return "it has no log"

    def processes(self) -> list[int]:
        """Return the ids of the server's processes, whether or not the first of them still lives."""
        return [pid for pid, line in _command_lines().items() if self._is_ours(line)]

    def _is_ours(self, command_line: str) -> bool:
        titled = command_line.startswith(f"postgres: {self.name}: ")
        # pg_ctl's shell, which becomes the first process, quotes the words.
        return titled or f"/postgres -D {self.data} " in command_line.replace('"', "")

    def _first_process(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int((self.data / "postmaster.pid").read_text().partition("\n")[0])
        return None

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _wait_until_gone(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.processes():
            if time.monotonic() > end:
                raise ServerFault(f"the server in {self.folder} is still there after {seconds:g} s")
            time.sleep(0.02)


def _command_lines() -> dict[int, str]:
    """Return the command line of every process by its id."""
    if _HAS_PROC:
        pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
        return {pid: _command_line(pid) for pid in pids}
    listed = _ps("-ax")
    return {int(pid): f"{line} " for pid, _, line in (each.strip().partition(" ") for each in listed)}


def _command_line(pid: int) -> str:
    """Return a process's command line, each word with a blank after it; nothing of a dead one."""
    if not _HAS_PROC:
        return "".join(f"{each.strip().partition(' ')[2]} " for each in _ps("-p", str(pid)))
    with contextlib.suppress(OSError):
        return os.fsdecode((_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" "))
    return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _ps(*which: str) -> list[str]:
    listed = subprocess.run(
        ["ps", *which, "-ww", "-o", "pid=,command="], check=False, capture_output=True, text=True, errors="replace"
    )
    return listed.stdout.splitlines()

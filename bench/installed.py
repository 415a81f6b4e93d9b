"""Products to be measured beside ours: environments and processes of their own, at pinned versions."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

Command: TypeAlias = Sequence[str | Path]
SCRIPTS: Final = Path(__file__).with_name("peer")


class NotRun(Exception):
    """It cannot be installed or run here; says why."""


def python_environment(folder: Path, packages: Sequence[str]) -> Path:
    """Return the interpreter of a virtual environment with these packages, made now or found."""
    python = folder / "bin" / "python"
    if _is_missing(folder, packages):
        run([sys.executable, "-m", "venv", "--without-pip", folder])
        run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *packages])
        _note(folder, packages)
    return python


def node_packages(folder: Path, packages: Sequence[str]) -> Path:
    """Return the folder for NODE_PATH with these packages, installed now or found."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise NotRun("there is no node, or no npm")
    if _is_missing(folder, packages):
        folder.mkdir(parents=True, exist_ok=True)
        run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, *packages])
        _note(folder, packages)
    return folder / "node_modules"


def _is_missing(folder: Path, packages: Sequence[str]) -> bool:
    note = folder / "installed"
    return not note.exists() or note.read_text().split() != list(packages)


def _note(folder: Path, packages: Sequence[str]) -> None:
    (folder / "installed").write_text("\n".join(packages))


def run(command: Command, environ: Mapping[str, str] | None = None) -> None:
    """Run a command to its end. Raises `NotRun`, with its last words, where it fails."""
    try:
        subprocess.run(
            command, env={**os.environ, **(environ or {})}, capture_output=True, text=True, check=True, timeout=240
        )
    except (subprocess.SubprocessError, OSError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise NotRun(f"{Path(command[0]).name} failed: {said[-1]}") from None


@contextmanager
def running(command: Command, environ: Mapping[str, str], log: Path) -> Iterator[None]:
    """Run a process beside us, and stop it with all that it started."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            command, env={**os.environ, **environ}, cwd=log.parent, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        # The group is its own: nobody else's process is in it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Redis:
    """A Redis of our own on a Unix socket, which keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / "redis.sock"

    @property
    def url(self) -> str:
        return f"redis+socket://{self._socket}"

    @contextmanager
    def running(self) -> Iterator["Redis"]:
        """Raises `NotRun` where there is none, or it does not start."""
        if not shutil.which("redis-server"):
            raise NotRun("there is no redis-server")
        at: Command = ["--port", "0", "--unixsocket", self._socket, "--dir", self._folder]
        with running(["redis-server", *at, "--save", "", "--appendonly", "no"], {}, self._folder / "redis.log"):
            end = time.monotonic() + 10
            while not self._socket.exists():
                if time.monotonic() > end:
                    raise NotRun("redis-server does not start")
                time.sleep(0.02)
            yield self

    def number(self, command: str) -> int:
        """Ask something that is answered by a number."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            connection.sendall(f"{command}\r\n".encode())
            return int(connection.recv(100).removeprefix(b":"))

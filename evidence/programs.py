"""A program as a real process: command, environment, both streams apart, exit status and times are kept.

Its streams go straight into the step's files, so that nothing of ours stands between a program and its record.
"""

import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from evidence.journal import Journal, utc_now
from evidence.waiting import wait_until

Address = tuple[str, int]


class Program:
    """A running program."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        secret: tuple[str, ...] = (),
    ) -> None:
        shown = {key: "…" if secret and key.startswith(secret) else value for key, value in environment.items()}
        self.name = name
        self._journal = journal
        place = journal.folder / "programs"
        place.mkdir(exist_ok=True)
        file = f"{len(list(place.glob('*.json'))) + 1:02d}-{re.sub(r'[^a-z0-9]+', '-', name)}"
        self._stdout, self._stderr = place / f"{file}.stdout", place / f"{file}.stderr"
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self._record = {
            "name": name,
            "file": file,
            "command": list(command),
            "shell": shlex.join(["env", "-i", *(f"{key}={value}" for key, value in shown.items()), *command]),
            "environment": shown,
            "folder": str(folder),
            "pid": self.pid,
            "began_utc": utc_now(),
            "began": journal.now(),
            "ended": None,
            "status": None,
        }
        self._keep()

    def __repr__(self) -> str:
        return f"<Program {self.name} pid={self.pid} status={self._process.poll()}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def stdout(self) -> str:
        return self._stdout.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    @property
    def address(self) -> Address:
        """Where a web's API listens."""
        return self._bound("listen")

    @property
    def admin(self) -> Address:
        """Where a web's health and readiness listen."""
        return self._bound("admin")

    def _bound(self, which: str) -> Address:
        found = re.search(rf"\bready web .*\b{which}=(\S+):(\d+)", self.stdout)
        if not found:
            raise LookupError(f"{self} printed no address")
        return found[1].strip("[]"), int(found[2])

    @property
    def dispatcher(self) -> str:
        """A dispatcher's id."""
        found = re.search(r"\bready dispatcher id=(\S+)", self.stdout)
        if not found:
            raise LookupError(f"{self} printed no id")
        return found[1]

    def saw(self, text: str) -> bool:
        return self.count(text) > 0

    def count(self, text: str) -> int:
        return self.stdout.count(text) + self.stderr.count(text)

    def wait_for(self, text: str, seconds: float = 20, *, times: int = 1) -> None:
        """Wait until the program has printed this, so many times. Raises `NotSo`, also where it ended without."""
        wait_until(lambda: self.count(text) >= times or not self.running, f"{self} printed {text!r}", seconds)
        wait_until(lambda: self.count(text) >= times, f"{self}, which ended, printed {text!r}", 0)

    def send(self, number: signal.Signals) -> None:
        self._journal.event("signal", signal=number.name, to=self.name, pid=self.pid)
        self._process.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        """Wait for the end; returns the exit status, -9 for SIGKILL. Raises `subprocess.TimeoutExpired`."""
        status = self._process.wait(seconds)
        if self._record["ended"] is None:
            self._record |= {"status": status, "ended": self._journal.now(), "ended_utc": utc_now()}
            self._keep()
        return status

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM, wait, return the exit status."""
        self.send(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self) -> int:
        self.send(signal.SIGKILL)
        return self.wait()

    def tidy_up(self) -> None:
        """End the program when its step is over, by force if need be, and say so."""
        if self.running:
            self._process.send_signal(signal.SIGCONT)
            try:
                self.stop(15)
            except subprocess.TimeoutExpired:
                self._journal.event("had to be killed", program=self.name)
                self.kill()
        self.wait()

    def _keep(self) -> None:
        self._journal.whole(f"programs/{self._record['file']}.json", self._record)

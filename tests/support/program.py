"""Our programs as real processes, each in a session of its own, with everything they print kept."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
Address = tuple[str, int]

# Short, so that tests are; the grace period is the least that start-up accepts with these.
SETTINGS: Final = {
    "PORT": "0",
    "TALLY_BEAT_SECONDS": "0.2",
    "TALLY_CANCEL_LOOKUP_SECONDS": "0.2",
    "TALLY_SWEEP_SECONDS": "0.2",
    "TALLY_BACKOFF_SECONDS": "0.1",
    "TALLY_GRACE_SECONDS": "4.5",
    "TALLY_DRAIN_SECONDS": "8",
    "TALLY_DRAIN_RESERVE_SECONDS": "1",
}


class Program:
    """A running program and what it printed so far."""

    def __init__(self, command: list[str], env: Mapping[str, str], folder: Path = ROOT) -> None:
        self.command = command
        self._printed: list[str] = []
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="program-reader", daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"<Program {' '.join(self.command[1:])} pid={self.pid} status={self._process.poll()}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return "".join(self._printed)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def address(self) -> Address:
        """Where a web's API listens."""
        return self._bound("listen")

    @property
    def admin(self) -> Address:
        """Where a web's health and readiness listen."""
        return self._bound("admin")

    def _bound(self, which: str) -> Address:
        found = re.search(rf"\bready web .*\b{which}=(\S+):(\d+)", self.output)
        assert found, f"no address in: {self.output}"
        return found[1].strip("[]"), int(found[2])

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as printed:
            for line in printed:
                self._printed.append(line)

    def saw(self, text: str) -> bool:
        return text in self.output

    def wait_for(self, text: str, seconds: float = 20) -> None:
        """Wait until the program has printed this text; fail when it ends before."""

        def printed_or_ended() -> bool:
            return self.saw(text) or not (self.running or self._reader.is_alive())

        wait_until(printed_or_ended, f"{self} printed {text!r}", seconds, lambda: self.output)
        assert self.saw(text), f"{self} ended without printing {text!r}:\n{self.output}"

    def wait_ready(self, seconds: float = 20) -> None:
        self.wait_for("ready ", seconds)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP, and wait until it has reached every thread: on a busy machine some run on for a while."""
        self.send(signal.SIGSTOP)
        threads = Path(f"/proc/{self.pid}/task")

        def states() -> set[str]:
            found = set()
            for each in threads.iterdir():
                with suppress(OSError):  # it has ended since
                    found.add((each / "stat").read_text().rpartition(") ")[2][0])
            return found

        wait_until(lambda: states() == {"T"}, f"{self} is frozen", seen=states)

    def wait(self, timeout: float = 30) -> int:
        """Wait for the end and return the exit status, -9 for SIGKILL."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} is still running after {timeout:g} s:\n{self.output}") from None
        # What outlives the program may hold its output open.
        self._reader.join(2)
        return status

    def stop(self) -> int:
        """SIGTERM, wait, return the exit status."""
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def tidy_up(self) -> None:
        """End the program if it still runs; needing SIGKILL for that is a failure."""
        if not self.running:
            return
        self.send(signal.SIGCONT)
        try:
            self.stop()
        except AssertionError:
            self.kill()
            raise


class RunProgram(Protocol):
    def __call__(
        self, module: str, *args: str, env: Mapping[str, str | None] | None = None, ready: bool = True
    ) -> Program: ...


RunDispatcher = Callable[..., Program]


def environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the environment of a program under test: short settings and nothing of the person's."""
    own = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONUNBUFFERED": "1", **SETTINGS}
    merged: dict[str, str | None] = {**own, **(changes or {})}
    return {name: value for name, value in merged.items() if value is not None}


@contextmanager
def programs(database_url: str, folder: Path = ROOT) -> Iterator[RunProgram]:
    """Yield `run_program`, for the code in this folder; what it started and still runs is ended afterwards."""
    started: list[Program] = []

    def run_program(
        module: str, *args: str, env: Mapping[str, str | None] | None = None, ready: bool = True
    ) -> Program:
        command = [sys.executable, "-m", module, *args]
        program = Program(command, environment({"DATABASE_URL": database_url, **(env or {})}), folder)
        started.append(program)
        if ready:
            program.wait_ready()
        return program

    try:
        yield run_program
    finally:
        failures = []
        for program in reversed(started):
            try:
                program.tidy_up()
            except AssertionError as error:
                failures.append(str(error))
            # Shown by pytest when the test fails.
            print(f"--- {program}\n{program.output}")
        assert not failures, "\n".join(failures)

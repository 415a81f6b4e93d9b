"""What a step has in its hands: a database of its own, our programs, clients, and a journal of all of it."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evidence.client import Client
from evidence.journal import Journal
from evidence.programs import Address, Program
from evidence.proxy import Proxy
from evidence.waiting import T, wait_until

if TYPE_CHECKING:
    # Both need the driver; a step's claims are worked out without.
    from evidence.cluster import Cluster
    from evidence.database import Database

# Short, so that steps are; the grace period is the least that start-up accepts with these.
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


class Stage:
    """One step's. Everything started here and still running is ended when the step is over."""

    def __init__(
        self,
        journal: Journal,
        database: "Database",
        cluster: "Cluster | None",
        code: Path,
        scratch: Path,
        *,
        kills: int,
        seed: int,
    ) -> None:
        self.journal = journal
        self.database = database
        self._cluster = cluster
        self._code = code
        self.scratch = scratch
        self.kills = kills
        self.seed = seed
        self._started: list[Program] = []

    @property
    def cluster(self) -> "Cluster":
        if self._cluster is None:
            raise LookupError("this stage has a server that is not its own")
        return self._cluster

    # Programs

    def program(
        self, name: str, *command: str, env: Mapping[str, str | None] | None = None, until: str = ""
    ) -> Program:
        """Start a process, under short settings and nothing of the person's, and wait until it printed `until`."""
        taken = {each.name for each in self._started}
        number = next(i for i in range(1, len(taken) + 2) if (f"{name} {i}" if i > 1 else name) not in taken)
        given: dict[str, str | None] = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(self._code),
            "EVIDENCE_EFFECTS": str(self.journal.folder / "effects"),
            "DATABASE_URL": self.database.url,
            **SETTINGS,
            **(env or {}),
        }
        environment = {key: value for key, value in given.items() if value is not None}
        named = f"{name} {number}" if number > 1 else name
        started = Program(self.journal, named, command, environment, self.scratch)
        self._started.append(started)
        if until:
            started.wait_for(until)
        return started

    def web(self, *arguments: str, env: Mapping[str, str | None] | None = None, until: str = "ready web") -> Program:
        """Start `python -m falcon_app`: "web", "web 2", …"""
        return self.program("web", sys.executable, "-m", "falcon_app", *arguments, env=env, until=until)

    def dispatcher(
        self, *arguments: str, env: Mapping[str, str | None] | None = None, until: str = "ready dispatcher"
    ) -> Program:
        """Start `python -m dispatcher` with the kinds of the evidence: "dispatcher", "dispatcher 2", …"""
        command = [sys.executable, "-m", "dispatcher", "--tasks", "evidence.kinds", *arguments]
        return self.program("dispatcher", *command, env=env, until=until)

    def client(self, to: Program | Address, timeout: float = 20) -> Client:
        """Return a client of a web's API, or of any address."""
        return Client(self.journal, to.address if isinstance(to, Program) else to, timeout)

    # The database

    def sql(self, statement: str, /, *, label: str = "", **values: Any) -> list[dict[str, Any]]:
        return self.database.sql(statement, label=label, **values)

    def state(self, task: int) -> str:
        """The state of a task, by SQL."""
        return str(self.database.value("select state from tally.task where id = %(task)s", task=task))

    def migrate(self) -> None:
        self.sql_program("migrate")

    def max_open(self, tasks: int) -> None:
        """Set the capacity of the queue, as a person does."""
        self.sql_program("queue", "default", "--max-open", str(tasks))

    def sql_program(self, *arguments: str) -> Program:
        """Run `python -m sql` to its end. Raises `RuntimeError` unless that is with 0."""
        ran = self.program(f"sql {arguments[0]}", sys.executable, "-m", "sql", *arguments)
        if ran.wait(60) != 0:
            raise RuntimeError(f"{ran} failed: {ran.stderr}")
        return ran

    @contextmanager
    def proxy(self) -> Iterator[Proxy]:
        """Put a proxy before the database: programs go through it with `env={"DATABASE_URL": proxy.url}`."""
        proxy = Proxy(self.journal, self.database.url)
        try:
            yield proxy
        finally:
            proxy.close()

    def await_all(self, seconds: float = 20) -> None:
        """Wait until no task is open."""
        still_open = "select count(*) from tally.task where state in ('QUEUED', 'RUNNING')"
        wait_until(lambda: self.database.value(still_open) == 0, "no task is open", seconds, 0.05)

    # The rest

    def wait_until(self, condition: Callable[[], T], says: str, seconds: float = 20, every: float = 0.01) -> T:
        return wait_until(condition, says, seconds, every)

    def wait(self, seconds: float) -> None:
        """Let time pass, where time itself is the fault, or where nothing must happen in it."""
        self.journal.event("waited", seconds=seconds)
        time.sleep(seconds)

    def event(self, event: str, **more: Any) -> None:
        self.journal.event(event, **more)

    def gate(self) -> Path:
        """Return the path of a file that is not there yet: a body of kind `gate` waits for it."""
        return self.scratch / f"gate-{secrets.token_hex(4)}"

    def open(self, gate: Path) -> None:
        self.journal.event("gate opened", gate=gate.name)
        gate.touch()

    @property
    def effects(self) -> list[int]:
        """The task of every body started so far."""
        file = self.journal.folder / "effects"
        return [int(line.split()[0]) for line in file.read_text().splitlines()] if file.exists() else []

    def tidy_up(self) -> None:
        for program in reversed(self._started):
            program.tidy_up()

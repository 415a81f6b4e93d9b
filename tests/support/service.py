"""Both programs as one service over HTTP, and the book of every submit and its answer.

Each submission carries a marker in its input and leaves an effect when its body starts, so that the book can be
reconciled with the rows whatever became of the answers.
"""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.support.clients import repeating
from tests.support.database import Database
from tests.support.http import TERMINAL, Client, Response
from tests.support.ledger import OPEN
from tests.support.program import Program, RunDispatcher, RunProgram
from tests.support.tasks import effects
from tests.support.waiting import wait_until

DEADLINE: Final = 2.5
"""Seconds in which a request is answered, by default."""
SLACK: Final = 0.7
"""For a busy machine: from the client's first packet to a request thread, and back."""


@dataclass(frozen=True)
class Submitted:
    """One submit as its client saw it; status 0 where no answer came."""

    marker: str
    status: int
    code: str | None
    task: int | None
    seconds: float


@dataclass
class Service:
    """A web process and a dispatcher on one database; `start` them first."""

    database: Database
    run_program: RunProgram
    run_dispatcher: RunDispatcher
    folder: Path
    book: list[Submitted] = field(default_factory=list)
    reads: list[tuple[int, float]] = field(default_factory=list)
    web: Program = field(init=False)
    dispatcher: Program = field(init=False)
    _numbers: "count[int]" = field(default_factory=count)

    def start(self, *arguments: str, env: dict[str, str | None] | None = None) -> None:
        """Start both with this environment; the arguments are the dispatcher's."""
        self.web = self.run_program("falcon_app", env=env)
        self.dispatcher = self.run_dispatcher(*arguments, env=env)

    @property
    def api(self) -> Client:
        return Client(self.web.address)

    @property
    def gate(self) -> Path:
        """The file that `gate` bodies wait for."""
        return self.folder / "gate"

    @property
    def started(self) -> list[int]:
        """The ids of the bodies that have started, in their order."""
        return effects(self.folder / "effects")

    def probe(self, path: str) -> int:
        """Return the status of a resource of the admin listener."""
        return Client(self.web.admin).get(path).status

    def ready(self) -> dict[str, Any]:
        answer = Client(self.web.admin).get("/readyz")
        assert answer.status == 200, answer.body
        report: dict[str, Any] = answer.json()
        return report

    def submit(
        self,
        kind: str = "echo",
        *,
        web: Program | None = None,
        key: str | None = None,
        marker: str | None = None,
        **members: Any,
    ) -> Submitted:
        """Submit a task and enter the answer in the book; the marker is another each time, unless it is given."""
        marker = marker or f"m{next(self._numbers)}"
        headers = {} if key is None else {"Idempotency-Key": key}
        content = {"marker": marker, "effects": str(self.folder / "effects"), "gate": str(self.gate), **members}
        return self._entered(marker, lambda: Client((web or self.web).address).submit(kind, content, headers))

    def submit_text(self, text: str) -> Submitted:
        """Submit a text in the short form; the text, which must be the only one of its kind, is the marker."""
        return self._entered(text, lambda: self.api.submit(input={"text": text}))

    def _entered(self, marker: str, ask: Callable[[], Response]) -> Submitted:
        began = monotonic()
        try:
            answer = ask()
        except (OSError, http.client.HTTPException):
            entry = Submitted(marker, 0, None, None, monotonic() - began)
        else:
            document = answer.json()
            seconds = monotonic() - began
            entry = Submitted(marker, answer.status, document.get("code"), document.get("id"), seconds)
        self.book.append(entry)
        return entry

    def accepted(self, kind: str = "echo", **members: Any) -> int:
        """Submit a task that is accepted, and return its id."""
        entry = self.submit(kind, **members)
        assert entry.status == 202, entry
        assert entry.task is not None
        return entry.task

    def read(self, task: int) -> int:
        """Read a task and return the status, 0 where no answer came."""
        began = monotonic()
        try:
            status = self.api.get(f"/tasks/{task}").status
        except (OSError, http.client.HTTPException):
            status = 0
        self.reads.append((status, monotonic() - began))
        return status

    def state(self, task: int) -> str:
        return str(self.database.value("select state from tally.task where id = %s", (task,)))

    def await_state(self, task: int, *states: str) -> None:
        wait_until(lambda: self.state(task) in states, f"task {task} is {states}", seen=lambda: self.row(task))

    def row(self, task: int) -> tuple[str, Any, Any]:
        """Return a task's state, result and error as the table has them."""
        ((state, result, error),) = self.database.rows(
            "select state, result, error from tally.task where id = %s", (task,)
        )
        return state, result, error

    def statistics(self, task: int) -> tuple[Any, ...]:
        """Return what the view for people shows of a text: state, words, bytes, runes, if a cancel was accepted."""
        (row,) = self.database.rows(
            "select state, words, bytes, runes, cancel_requested from tally.text_stats where id = %s", (task,)
        )
        return row

    @contextmanager
    def load(self, known: int, clients: int = 6, pause: float = 0.05) -> Iterator[None]:
        """While inside, clients submit, and read this task, by turns, each with a pause after every request."""

        def client() -> Callable[[], object]:
            turns: Iterator[Callable[[], object]] = cycle([self.submit, partial(self.read, known)])

            def ask() -> None:
                next(turns)()

            return ask

        with repeating([client() for _ in range(clients)], pause):
            yield

    def slowest(self) -> float:
        """Return the longest that any client has waited for an answer."""
        return max([entry.seconds for entry in self.book] + [seconds for _, seconds in self.reads])

    def await_recovery(self, seconds: float = 5) -> None:
        """Wait until submits are accepted again and readiness is green, with nobody's help."""
        wait_until(lambda: self.submit().status == 202, "submits are accepted again", seconds, lambda: self.book[-1])
        wait_until(lambda: self.probe("/readyz") == 200, "the service is ready again", seconds)

    def await_all(self, seconds: float = 20) -> None:
        """Wait until no task is open."""
        still = "select id, state from tally.task where state = any(%s)"
        wait_until(
            lambda: not self.database.rows(still, (list(OPEN),)),
            "no task is open",
            seconds,
            lambda: self.database.rows(still, (list(OPEN),)),
        )

    def reconcile(self, *, open_tasks: int = 0) -> None:
        """202s = terminal + open, no refused submit left a row, no body started twice."""
        found = self.database.rows("select coalesce(input ->> 'marker', input ->> 'text'), id, state from tally.task")
        rows = {marker: task for marker, task, _ in found}
        assert len(rows) == len(found), "a submission has two rows"
        accepted = {entry.marker: entry.task for entry in self.book if entry.status == 202}
        unknown = {entry.marker for entry in self.book if entry.status in {0, 504}}
        assert {marker: rows.get(marker) for marker in accepted} == accepted, "a 202 has no row of its own"
        assert set(rows) - set(accepted) <= unknown, "a refused submit left a row"
        states = [state for _, _, state in found]
        assert sum(state in OPEN for state in states) == open_tasks
        assert sum(state in TERMINAL for state in states) == len(rows) - open_tasks
        started = self.started
        assert len(started) == len(set(started)), "a body was started twice"
        assert set(started) <= set(rows.values())


def at_the_same_time(*calls: Callable[[], Any]) -> list[Any]:
    """Make these calls together, each in a thread, and return what they return."""
    results: list[Any] = [None] * len(calls)

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            results[place] = call()
        except BaseException as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def thread_count(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/task").iterdir()))


def file_count(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/fd").iterdir()))


def resident_bytes(program: Program) -> int:
    text = Path(f"/proc/{program.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) * 1024

"""The service on many processes while the cluster fails over: load, what it was answered, and how long nobody was."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from tests.support.clients import repeating
from tests.support.program import Program
from tests.support.service import DEADLINE, Service
from tests.support.waiting import wait_until

# The least that start-up accepts with three addresses to try, and a little more.
GRACE_SECONDS: Final = 12.5
SETTINGS: Final[dict[str, str | None]] = {"TALLY_GRACE_SECONDS": str(GRACE_SECONDS)}
SLACK: Final = 1.5
"""For a machine on which three servers, and ours, start again at the same time."""
BACK_SECONDS: Final = 30
"""In which everybody is accepted again once there is a primary, also on such a machine."""
COMMITS_WAIT: Final = """
    select count(*) from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'tally-web admission'
"""
"""How many COMMITs of submits wait for the standby to confirm them; one at a time, since it holds the queue's lock."""


@dataclass(frozen=True)
class Answer:
    """When the client of a web had an answer, and its status, 0 where none came."""

    at: float
    web: int
    status: int


@dataclass
class Event:
    """What was done to the cluster, and what the clients saw of it."""

    name: str
    began: float
    answers: list[Answer] = field(default_factory=list)
    settled: int = 0

    def __str__(self) -> str:
        accepted = [answer.at for answer in self.answers if answer.status == 202]
        since, until = max(pairwise(accepted), key=lambda pair: pair[1] - pair[0])
        after = f", the next one {until - self.began:.1f} s after it" if since < self.began + 1 < until else ""
        said = Counter(answer.status for answer in self.answers)
        return (
            f"{self.name}: at most {until - since:.1f} s without a 202{after}; "
            f"answers: {said[202]} 202, {said[503]} 503, {said[504]} 504, {said[0]} none; "
            f"unknown COMMITs settled: {self.settled}"
        )


@dataclass
class Fleet:
    """Two web processes and two dispatchers; the book of every answer is the service's."""

    service: Service
    webs: list[Program] = field(default_factory=list)
    dispatchers: list[Program] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def start(self, env: Mapping[str, str] | None = None) -> None:
        merged = {**SETTINGS, **(env or {})}
        self.webs = [self.service.run_program("falcon_app", env=merged) for _ in range(2)]
        self.dispatchers = [self.service.run_dispatcher("--slots", "4", env=merged) for _ in range(2)]
        self.service.web, self.service.dispatcher = self.webs[0], self.dispatchers[0]

    def submit(self, web: int = 0, kind: str = "echo", **members: Any) -> int:
        """Submit a task to one of the webs and return the status."""
        status = self.service.submit(kind, web=self.webs[web], **members).status
        self.answers.append(Answer(monotonic(), web, status))
        return status

    def submit_surely(self, web: int, **members: Any) -> None:
        """Submit under a key, and again at the next web, until it is known what became of it."""
        key = str(uuid4())
        for _ in range(40):
            if self.submit(web, marker=key, key=key, **members) not in {0, 504}:
                return
            web = (web + 1) % len(self.webs)
        raise AssertionError(f"the task under {key} was never settled")

    @contextmanager
    def load(self, clients: int = 6, pause: float = 0.05) -> Iterator[None]:
        """While inside, clients submit, each to its web, half of them under keys; one of them longer tasks."""

        def client(number: int) -> Callable[[], object]:
            submit = self.submit if number % 4 < 2 else self.submit_surely
            members: dict[str, Any] = {} if number else {"kind": "sleep", "seconds": 0.3}
            return partial(submit, number % len(self.webs), **members)

        with repeating([client(number) for number in range(clients)], pause, patience=120):
            yield

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Under load, with bodies running: do something to the cluster inside, until there is a primary again.

        Afterwards both webs accept, the bodies end by those who held them, and the books agree.
        """
        gate = self.service.folder / f"gate-{uuid4()}"
        held = self._hold(gate)
        with self.load():
            self._await_accepted(10)
            since, settled = len(self.answers), self._settled()
            event = Event(name, monotonic())
            yield
            self._await_accepted(20)
        event.answers = self.answers[since - 1 :]
        event.settled = self._settled() - settled
        self.events.append(event)
        gate.touch()
        self.reconcile()
        assert self._holders(list(held)) == held, "a body was not ended by its holder"

    def _hold(self, gate: Path) -> dict[int, str]:
        """Let two bodies run until there is a file; return who holds them."""
        held = [self.service.accepted("gate", gate=str(gate)) for _ in range(2)]
        for task in held:
            self.service.await_state(task, "RUNNING")
        return self._holders(held)

    def _holders(self, tasks: list[int]) -> dict[int, str]:
        rows = self.service.database.rows("select id, claimed_by from tally.task where id = any(%s)", (tasks,))
        return {task: str(holder) for task, holder in rows}

    def _await_accepted(self, count: int) -> None:
        """Wait until each web has accepted so many more."""
        since = len(self.answers)

        def accepted() -> Counter[int]:
            return Counter(answer.web for answer in self.answers[since:] if answer.status == 202)

        wait_until(
            lambda: all(accepted()[web] >= count for web in range(len(self.webs))),
            f"each web has accepted {count} more",
            BACK_SECONDS,
            lambda: self.answers[-10:],
        )

    def _settled(self) -> int:
        return sum(web.output.count("admission.settled") for web in self.webs)

    def reconcile(self) -> None:
        """Whatever was answered 202 is there and has succeeded; nobody waited for longer; nobody was condemned."""
        self.service.await_all(BACK_SECONDS)
        self.service.reconcile()
        unlike = "select id, state, error from tally.task where state <> 'SUCCEEDED'"
        assert self.service.database.rows(unlike) == []
        assert self.service.slowest() < DEADLINE + SLACK
        stopped = "select id, stopped_why from tally.dispatcher where stopped_at is not null"
        assert self.service.database.rows(stopped) == []
        assert all(program.running for program in self.webs + self.dispatchers)

    def stop(self) -> None:
        """Everything that was asked is answered, everything that was claimed has ended."""
        programs = self.webs + self.dispatchers
        assert [program.stop() for program in programs] == [0] * len(programs)

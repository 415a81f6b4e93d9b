"""A loop on a real database, with slots and outcomes."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from queue import SimpleQueue
from threading import Event
from typing import Any

from dispatcher import Context
from dispatcher.claims import Claims
from dispatcher.loop import Loop, Times
from dispatcher.messages import Inbox, Report, Verdict
from dispatcher.outcomes import Outcomes
from dispatcher.sessions import Database as Reached
from dispatcher.slots import Slots
from tests.dispatcher.background import Background
from tests.dispatcher.given import LIMITS, a_caller, a_task, running
from tests.support.database import Database

TIMES = Times(
    sweep=timedelta(seconds=0.1),
    backoff=timedelta(seconds=0.05),
    drain=timedelta(seconds=20),
    drain_reserve=timedelta(seconds=1),
)


class Looped:
    """A loop with slots and outcomes; its kind `echo` returns its input, `sleep` sleeps until it is canceled.

    `try` raises `fails` times and then returns; `stay` is attempted again after a crash, and waits for its gate,
    whatever is asked meanwhile. Both have attempts left only where they are published.
    """

    def __init__(self, database: Database, reached: Reached, times: Times = TIMES, *, repeats: bool = True) -> None:
        self.reached = reached
        self.dispatcher = reached.dispatcher
        self.inbox = Inbox()
        self.begun: SimpleQueue[int] = SimpleQueue()
        self.turns = 0
        self.fails = 1
        self.gate = Event()
        self.kinds = {"echo": a_task("echo", self._echo), "sleep": a_task("sleep", self._sleep)}
        if repeats:
            self.kinds["try"] = a_task("try", self._try, max_attempts=3)
            self.kinds["stay"] = a_task("stay", self._stay, max_attempts=3, on_crash="retry")
        self.caller = a_caller(database, reached, "loop")
        self.outcomes = Outcomes(
            a_caller(database, reached, "outcomes"),
            a_caller(database, reached, "outcomes-2"),
            self._acknowledge,
            lambda: None,
        )
        self.slots = Slots(
            4,
            self.kinds,
            LIMITS,
            60,
            on_end=self.outcomes.put,
            on_unsure=self.inbox.put,
        )
        self.claims = Claims(self.caller, "default", lambda: self.loop.is_stopping())  # noqa: PLW0108 - made below
        self.loop = Loop(
            self.inbox,
            self.caller,
            self.claims,
            self.slots,
            self.outcomes,
            self.kinds,
            times,
            LIMITS,
            turn=self._turn,
            stalled=list,
        )

    def _acknowledge(self, written: list[tuple[Report, Verdict]]) -> None:
        self.loop.acknowledge(written)

    def _turn(self) -> None:
        self.turns += 1

    def _echo(self, input: dict[str, Any], context: Context) -> object:  # noqa: A002
        self.begun.put(context.task_id)
        return input

    def _sleep(self, input: dict[str, Any], context: Context) -> object:  # noqa: A002, ARG002
        self.begun.put(context.task_id)
        context.sleep(60)
        return None

    def _try(self, input: dict[str, Any], context: Context) -> object:  # noqa: A002, ARG002
        self.begun.put(context.task_id)
        if context.attempt <= self.fails:
            raise ValueError("on purpose")
        return context.attempt

    def _stay(self, input: dict[str, Any], context: Context) -> object:  # noqa: A002, ARG002
        self.begun.put(context.task_id)
        assert self.gate.wait(20)
        return None

    @contextmanager
    def runs(self) -> Iterator[Background[int]]:
        """Run the loop and both lanes; yields the loop's exit status to come. A loop that still runs is stopped."""
        first, second = self.outcomes.lanes
        with running(first.run, second.run, stop=self.outcomes.give_up.set):
            status = Background(self.loop.run)
            try:
                yield status
            finally:
                self.gate.set()
                self.slots.cancel_all()
                for _ in range(2):
                    self.inbox.signal()
                status.result()

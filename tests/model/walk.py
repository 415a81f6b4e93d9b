"""The model's steps, taken against the real functions: each answer, and the rows after each step, must be the model's.

A walk draws its steps from those that the model allows, rather one of a kind that was taken least. A claim stays
open in its transaction until the model commits it. A call that must wait for it, says the model, is made and must be
seen waiting; one gives up and has changed nothing, one goes on once the claim has ended, and answers as in the model.
A failover is imitated: the tables are set back to a copy, which is what everybody sees of one.

tests/sql/test_model.py drives the same functions in any order, with several tasks and transactions left open, knows no
more of a dispatcher than its name, and asks what must never be. Here only such orders are taken as dispatchers can
bring about, down to what each of them remembers, and each answer and each row is compared.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Final

from psycopg import Error

from tests.model.likeness import is_over
from tests.model.real import FORGET, GAVE_UP, PREPARE, Real, publish
from tests.model.routes import ENDS, Kind, Route, Wait, Ways, kind
from tests.model.search import onward
from tests.model.states import Next, Options, State, Step
from tests.model.traces import told, words
from tests.sql import calls
from tests.support.database import Database
from tests.support.waiting import wait_until

WAITS: Final = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
CUTS: Final = frozenset({"server restarts", "failover"})


class Diverged(AssertionError):
    """The real functions did something else than the model."""


class Walker:
    """Walks on one database, one after another; counts the kinds of steps that they took."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clerk = database.connect("model-clerk")
        self._claimer = database.connect("model-claimer")
        self._rival = database.connect("model-rival")
        self._clerk.execute(PREPARE)
        self._clerk.execute("set lock_timeout = '5ms'")
        self._trace: list[Next] = []
        self.kinds: Counter[Kind] = Counter()

    def wander(self, ways: Ways, seed: int, most: int = 100) -> None:
        """Take steps, rather such as were taken least, until the task has ended. Raises `Diverged`, with the trace."""
        random = Random(seed)
        faults, *seldom = random.randint(2, 6), random.random() < 0.3, random.random() < 0.3
        options = Options(random.randint(1, 3), random.random() < 0.5)
        state = ways.model.first(faults=faults, cancels=seldom[0], failovers=seldom[1], options=options)
        with self._walking(f"walk {seed}", options):
            while len(self._trace) < most and not is_over(state):
                waits = list(ways.waits(state)) if random.random() < 0.5 else []
                if waits:
                    weights = [self._weight(wait.kind) for wait in waits]
                    state = self._wait(state, random.choices(waits, weights)[0])
                else:
                    steps = list(ways.model.steps(state))
                    weights = [self._weight(kind(state, way)) for way in steps]
                    state = self._take(state, random.choices(steps, weights)[0])

    def follow(self, ways: Ways, route: Route) -> None:
        """Go where a step of the route's kind can be taken, and take it. Raises `Diverged`, with the trace."""
        goal, tries = route.goal, 0
        # A condemnation waits for half a second only: on a busy machine it may have to be asked again.
        while not self.kinds[goal] and tries < 5:
            state, tries = route.first, tries + 1
            with self._walking(f"the way to {goal}", state.options):
                for target in route.path:
                    state = self._take(state, onward(ways.model, state, target))
                if goal.after:
                    self._wait(state, next(wait for wait in ways.waits(state) if wait.kind == goal))
                else:
                    self._take(state, next(way for way in ways.model.steps(state) if kind(state, way) == goal))

    def retrace(self, first: State, trace: list[Next]) -> None:
        """Take just these steps, of whatever model. Raises `Diverged`."""
        state = first
        with self._walking("a trace", first.options):
            for way in trace:
                state = self._take(state, way)

    def _weight(self, step: Kind) -> float:
        return 1 / (1 + self.kinds[step])

    @contextmanager
    def _walking(self, name: str, options: Options) -> Iterator[None]:
        self._clerk.execute(FORGET)
        publish(self._clerk, options)
        self._real = Real(calls.submit_one(self._clerk))
        self._trace = []
        try:
            yield
        except (AssertionError, Error) as error:
            raise Diverged("\n".join([f"{name}: {error}", *told(self._trace)])) from error
        finally:
            for connection in (self._clerk, self._claimer):
                connection.rollback()

    def _take(self, state: State, way: Next) -> State:
        step, after = way
        self._trace.append(way)
        # A claim that takes the task keeps its connection, until it ends.
        claims = step.verb == "claim" and state.open is None
        connection = self._claimer if claims or step.verb in ENDS | CUTS else self._clerk
        answer = self._real.answer(connection, step)
        assert answer == step.answer, f"{words(step)}: but the real answer is {answer!r}"
        self._real.compare(self._database, after)
        self.kinds[kind(state, way)] += 1
        return after

    def _wait(self, state: State, wait: Wait) -> State:
        """Let a call wait for the open claim: one gives up and has changed nothing, one hears its answer in the end."""
        step, ended, answered = wait
        if step.verb != "condemn":  # which sets for itself how long it waits
            answer = self._real.answer(self._clerk, step)
            assert answer == GAVE_UP, f"{words(step)}: it does not wait, the real answer is {answer!r}"
            self._real.compare(self._database, state)
        with ThreadPoolExecutor(1) as threads:
            future = threads.submit(self._real.answer, self._rival, step)
            self._see_waiting(future, step)
            self._trace.append(ended)
            self._real.answer(self._claimer, ended[0])
            answer = future.result(timeout=10)
        if answer == GAVE_UP:
            self._real.compare(self._database, ended[1])
            return ended[1]
        self._trace.append(answered)
        assert answer == answered[0].answer, f"{words(answered[0])}: but the real answer is {answer!r}"
        self._real.compare(self._database, answered[1])
        self.kinds[wait.kind] += 1
        return answered[1]

    def _see_waiting(self, future: Future[str], step: Step) -> None:
        pid = self._rival.info.backend_pid
        wait_until(
            lambda: future.done() or self._database.value(WAITS, (pid,)),
            says=f"{words(step)} is waiting for the open claim",
            seen=lambda: future,
        )
        assert not future.done() or future.result() == GAVE_UP, f"{words(step)}: it does not wait"

"""A shortest way to each kind of step, so that none is left to chance when the real functions are walked."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.model.removals import Bounds
from tests.model.search import Search
from tests.model.server import Impatient
from tests.model.states import Next, State, Step
from tests.model.steps import Dispatchers

ENDS: Final = frozenset({"commit", "rollback"})


class Kind(NamedTuple):
    """A step, whoever takes it. `becomes`: the task's new state, where the step changes the task.

    `after`: it had to wait for an open claim, which ended so.
    """

    verb: str
    answer: str
    late: bool
    becomes: str
    after: str = ""


class Wait(NamedTuple):
    """What waits in a state for the open claim; how that ends, and what is answered then."""

    step: Step
    ended: Next
    answered: Next

    @property
    def kind(self) -> Kind:
        return kind(self.ended[1], self.answered)._replace(after=self.ended[0].verb)


def kind(before: State, way: Next) -> Kind:
    step, after = way
    return Kind(step.verb, step.answer, step.late, "" if after.task == before.task else after.task.state)


class Route(NamedTuple):
    """A shortest way to a step of a kind, or, for a wait, to where it begins."""

    goal: Kind
    first: State
    path: list[State]


class Ways:
    """The steps of a model, and what waits in it."""

    def __init__(self, at_once: int) -> None:
        self.model: Final = Dispatchers(at_once)
        self._impatient = Dispatchers(at_once, server=Impatient(frozenset()))

    def waits(self, state: State) -> Iterator[Wait]:
        """Yield each call that the open claim keeps waiting, with each way for the claim to end."""
        if state.open is None:
            return
        steps = list(self.model.steps(state))
        allowed = {call(step) for step, _ in steps}
        for step, _ in self._impatient.steps(state):
            if call(step) not in allowed:
                yield from self._ends(step, [way for way in steps if way[0].verb in ENDS])

    def _ends(self, step: Step, ends: list[Next]) -> Iterator[Wait]:
        for ended in ends:
            for answered in self.model.steps(ended[1]):
                if call(answered[0]) == call(step):
                    yield Wait(step, ended, answered)

    def routes(self, bounds: Bounds) -> list[Route]:
        """Search; return a route to each kind of step."""
        first = bounds.first(self.model)
        search = Search(self.model, first)
        assert search.run().broken is None
        found: dict[Kind, Route] = {}
        for number, state in enumerate(search.states):
            kinds = [kind(state, way) for way in self.model.steps(state)] + [wait.kind for wait in self.waits(state)]
            for goal in kinds:
                if goal not in found:
                    found[goal] = Route(goal, first, search.path(number))
        return list(found.values())


def call(step: Step) -> tuple[object, ...]:
    """What is asked of the database, whatever it answers."""
    return step.verb, step.who, step.detail, step.late, step.moved

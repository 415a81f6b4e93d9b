"""Every reachable state, breadth first, so that the trace to what breaks a promise is a shortest one.

Then: from each state there must be a way to the task's end, of steps that happen if they go on being possible. Where
such steps are taken fairly, that is as much as to say that no task is stuck for ever.
"""

from array import array
from dataclasses import dataclass
from itertools import accumulate
from time import process_time

from tests.model.likeness import canonical, is_over
from tests.model.promises import TERMINAL, broken, left_behind
from tests.model.states import Next, State
from tests.model.steps import UNFAIR, Dispatchers
from tests.model.traces import told

STUCK = "a task is stuck for ever"


@dataclass(frozen=True)
class Found:
    """What a search came to. `trace` leads to what is `broken`; it is empty where every promise is kept."""

    broken: str | None
    trace: list[Next]
    states: int
    transitions: int
    depth: int
    seconds: float

    @property
    def size(self) -> str:
        return f"{self.states:,} states, {self.transitions:,} transitions, depth {self.depth}, {self.seconds:.1f} s"

    def __str__(self) -> str:
        if self.broken is None:
            return f"every promise kept: {self.size}"
        return "\n".join([f"broken: {self.broken} ({self.size})", *told(self.trace)])


def onward(model: Dispatchers, state: State, target: State) -> Next:
    """Return the step out of a state that leads to one like the target."""
    return next(way for way in model.steps(state) if canonical(way[1]) == canonical(target))


class Search:
    """One exhaustive search; `run` it once. `states` are all that were found, in the order of their depth."""

    def __init__(self, model: Dispatchers, first: State) -> None:
        self._model = model
        self.states = [canonical(first)]
        self._numbers = {self.states[0]: 0}
        self._parents = array("I", [0])
        self._depths = array("I", [0])
        self._fair_from = array("I")
        self._fair_to = array("I")
        self._transitions = 0

    def run(self, most: int = 2_000_000) -> Found:
        """Search everything that can be reached. Raises when that is more than `most` states."""
        began = process_time()
        wrong, trace = self._reach(most) or self._stuck() or (None, [])
        size = len(self.states), self._transitions, self._depths[-1]
        return Found(wrong, trace, *size, process_time() - began)

    def _reach(self, most: int) -> tuple[str, list[Next]] | None:
        for number, state in enumerate(self.states):  # which grows meanwhile
            if is_over(state):
                continue
            for step, reached in self._model.steps(state):
                self._transitions += 1
                wrong = broken(state, step, reached) or left_behind(reached)
                if wrong:
                    return wrong, self._trace(number, wrong)
                target = self._numbers.get(reached, -1)
                if target < 0:
                    target = self._number(canonical(reached), number)
                if step.verb not in UNFAIR:
                    self._fair_from.append(number)
                    self._fair_to.append(target)
            if len(self.states) > most:
                raise RuntimeError(f"more than {most} states, at depth {self._depths[-1]}")
        return None

    def _number(self, state: State, parent: int) -> int:
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self._parents.append(parent)
            self._depths.append(self._depths[parent] + 1)
        return number

    def _stuck(self) -> tuple[str, list[Next]] | None:
        """Find a state from which no fair steps lead to the task's end: backwards from the ends, over fair steps."""
        starts = array("I", bytes(4 * (len(self.states) + 1)))
        for target in self._fair_to:
            starts[target + 1] += 1
        starts = array("I", accumulate(starts))
        sources, filled = array("I", bytes(4 * len(self._fair_to))), array("I", starts)
        for source, target in zip(self._fair_from, self._fair_to, strict=True):
            sources[filled[target]] = source
            filled[target] += 1
        ends = bytearray(state.task.state in TERMINAL for state in self.states)
        waiting = [number for number, end in enumerate(ends) if end]
        while waiting:
            target = waiting.pop()
            for source in sources[starts[target] : starts[target + 1]]:
                if not ends[source]:
                    ends[source] = True
                    waiting.append(source)
        stuck = ends.find(0)
        return None if stuck < 0 else (STUCK, self._trace(stuck))

    def path(self, number: int) -> list[State]:
        """Return the states on a shortest way to this one, without the first."""
        path = []
        while number:
            path.append(self.states[number])
            number = self._parents[number]
        return path[::-1]

    def _trace(self, number: int, wrong: str | None = None) -> list[Next]:
        """Return the steps on a shortest way to a state, and the one there that breaks a promise."""
        trace, state = [], self.states[0]
        for target in self.path(number):
            step, state = onward(self._model, state, target)
            trace.append((step, state))
        if wrong:
            ways = self._model.steps(state)
            trace.append(next(way for way in ways if wrong in {broken(state, *way), left_behind(way[1])}))
        return trace

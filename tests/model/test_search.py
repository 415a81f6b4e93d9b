"""Within these bounds every state is searched, and every promise is kept in each."""

import pytest

from tests.model.likeness import canonical, is_over
from tests.model.removals import ALL, REPEATED, TWICE, Bounds
from tests.model.search import Search
from tests.model.states import BEGUN, CONDEMNED, Options, State
from tests.model.steps import Dispatchers

pytestmark = pytest.mark.model

SEARCHES = {
    Bounds(1, 4): (35_000, 200_000, 21),
    Bounds(2, 3): (135_000, 790_000, 19),
    Bounds(1, 2, failovers=1): (21_000, 90_000, 21),
    Bounds(2, 1, failovers=1): (80_000, 410_000, 22),
    Bounds(1, 3, options=TWICE): (40_000, 230_000, 24),
    Bounds(1, 3, options=REPEATED): (40_000, 230_000, 24),
    Bounds(1, 2, options=Options(3, retried_after_crash=True)): (19_000, 105_000, 28),
    Bounds(2, 2, options=REPEATED): (190_000, 1_150_000, 23),
    Bounds(1, 1, failovers=1, options=TWICE): (26_000, 120_000, 32),
    Bounds(1, 1, failovers=1, options=REPEATED): (27_000, 120_000, 32),
}
"""To the fewest states, transitions and steps in a row: a search that finds less has lost something."""


@pytest.mark.parametrize("bounds", SEARCHES, ids=str)
def test_every_promise_is_kept(bounds: Bounds) -> None:
    found = bounds.search()

    print(f"{bounds}: {found}")
    assert found.broken is None, str(found)
    fewest_states, fewest_transitions, least_depth = SEARCHES[bounds]
    assert found.states >= fewest_states
    assert found.transitions >= fewest_transitions
    assert found.depth >= least_depth


@pytest.mark.parametrize("repeats", [False, True], ids=["fail", "retry"])
def test_attempts_run_side_by_side_only_where_a_crash_is_repeated(repeats: bool) -> None:
    bounds = Bounds(2, 1, options=REPEATED if repeats else TWICE)
    search = Search(Dispatchers(bounds.at_once), bounds.first(Dispatchers(bounds.at_once)))
    search.run()

    beside = [state for state in search.states if len(running(state)) > 1]

    assert bool(beside) == repeats
    assert all(any(state.rows[who].life == CONDEMNED for who in running(state)) for state in beside)


def running(state: State) -> list[int]:
    """Return whose process runs a body."""
    return [who for who, process in enumerate(state.processes) for held in process.held if held.body == BEGUN]


@pytest.mark.parametrize("bounds", ALL, ids=str)
def test_states_that_are_taken_for_alike_lead_to_the_like(bounds: Bounds) -> None:
    model = Dispatchers(bounds.at_once)
    search = Search(model, bounds.first(model))
    search.run()
    tried = 0

    for state in search.states:
        for _, reached in model.steps(state):
            like = canonical(reached)
            if reached != like and not is_over(like):
                tried += 1
                assert _leads_to(model, reached, like) == _leads_to(model, like, like)

    assert tried > 500


def _leads_to(model: Dispatchers, state: State, here: State) -> set[State]:
    """Return what can be reached by one step, but for the place itself."""
    return {canonical(reached) for _, reached in model.steps(state)} - {here}

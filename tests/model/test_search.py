"""Within these bounds every state is searched, and every promise is kept in each."""

import pytest

from tests.model.likeness import canonical, is_over
from tests.model.removals import ALL, Bounds
from tests.model.search import Search
from tests.model.states import State
from tests.model.steps import Dispatchers

pytestmark = pytest.mark.model

SEARCHES = {
    Bounds(1, 4): (40_000, 220_000, 21),
    Bounds(2, 3): (140_000, 800_000, 19),
    Bounds(1, 2, failovers=1): (27_000, 110_000, 23),
    Bounds(2, 1, failovers=1): (95_000, 470_000, 25),
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

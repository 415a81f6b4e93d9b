"""Each guard of the protocol is there for something: without it the search finds what breaks, or another covers it."""

import pytest

from tests.model.guards import GUARDS
from tests.model.removals import ALL, COVERED, NEEDED, Bounds

pytestmark = pytest.mark.model


def test_every_guard_is_tried() -> None:
    assert GUARDS.keys() == {*NEEDED, *(guard for guard, _ in COVERED)}


@pytest.mark.parametrize("guard", NEEDED)
def test_without_a_guard_a_promise_breaks(guard: str) -> None:
    bounds, promise = NEEDED[guard]

    found = bounds.search(guard)

    print(f"without '{guard}' ({GUARDS[guard]}), {bounds}:\n{found}")
    assert found.broken == promise
    assert found.trace


@pytest.mark.parametrize(("guard", "other"), COVERED)
def test_where_one_guard_covers_another_nothing_breaks_without_the_one(guard: str, other: str) -> None:
    bounds, promise = COVERED[guard, other]

    found = bounds.search(guard, other)

    print(f"without '{guard}' and '{other}', {bounds}:\n{found}")
    assert found.broken == promise
    for each in ALL:
        alone = each.search(guard)
        assert alone.broken is None, str(alone)


@pytest.mark.parametrize(
    ("guard", "other"),
    [("settle number", "slots once"), ("leave count", "drain settles"), ("finish holder", "finish running")],
)
def test_what_only_a_failover_shows_is_covered_otherwise(guard: str, other: str) -> None:
    bounds = Bounds(2, 2)

    assert bounds.search(guard).broken is None
    assert bounds.search(guard, other).broken is not None

"""The cursor: where the next claim goes on, and what brings it back."""

import pytest

from dispatcher.cursor import Cursor
from dispatcher.messages import Claim
from tests.dispatcher.given import a_claim
from tests.dispatcher.test_claims import Claimer
from tests.dispatcher.test_claims import claimer as claimer  # noqa: PLC0414 - a fixture
from tests.sql import calls
from tests.support.database import Database


def at(priority: int, position: int) -> Claim:
    claim = a_claim()
    return Claim(claim.id, 1, claim.kind, claim.input, priority, position, claim.known_at)


def passed(*claims: Claim, is_full: bool = True) -> Cursor:
    """Return a cursor that has passed these, in claims of one, after its first sweep."""
    cursor = Cursor()
    cursor.passed([], is_full=False)
    for claim in claims:
        cursor.passed([claim], is_full=is_full)
    return cursor


def test_the_first_claim_looks_from_the_start() -> None:
    assert Cursor().after_positions() == {}


def test_a_claim_goes_on_after_the_last_one_of_each_priority() -> None:
    cursor = passed(at(0, 4), at(0, 5), at(-1, 9))

    assert cursor.after_positions() == {0: 5, -1: 9}


def test_a_hint_lowers_it_and_never_raises_it() -> None:
    cursor = passed(at(0, 5), at(1, 9))

    cursor.hint(100)
    assert cursor.after_positions() == {0: 5, 1: 9}
    cursor.hint(7)
    cursor.hint(8)
    assert cursor.after_positions() == {0: 5, 1: 6}


def test_a_sweep_looks_once_from_the_start_and_then_where_it_was() -> None:
    cursor = passed(at(0, 5))

    cursor.sweep()
    assert cursor.after_positions() == {}
    cursor.passed([at(0, 2)], is_full=False)

    assert cursor.after_positions() == {0: 5}


def test_a_full_sweep_goes_on_behind_its_own_last_task() -> None:
    cursor = passed(at(-1, 7), at(0, 50), at(1, 60))

    cursor.sweep()
    cursor.passed([at(-1, 3), at(0, 2)], is_full=True)

    assert cursor.after_positions() == {-1: 7, 0: 2}


def test_a_claim_that_failed_leaves_the_sweep_to_the_next() -> None:
    cursor = passed(at(0, 5))

    cursor.sweep()

    assert cursor.after_positions() == cursor.after_positions() == {}


def test_nothing_is_remembered_of_a_database_that_was_away() -> None:
    cursor = passed(at(0, 5))

    cursor.forget()
    cursor.passed([], is_full=False)

    assert cursor.after_positions() == {}


@pytest.mark.parametrize("found_by", ["hint", "sweep"])
def test_a_task_that_was_committed_late_is_found(database: Database, claimer: Claimer, found_by: str) -> None:
    late = database.connect()
    with late.transaction():
        (task, position) = late.execute(
            "insert into tally.task (token, queue, kind, input) values (gen_random_uuid(), 'default', 'echo', '{}') "
            "returning id, position"
        ).fetchone() or (0, 0)
        later = calls.submit_one(database.connect())
        assert claimer.ids() == [later]
    assert claimer.ids() == []

    if found_by == "hint":
        claimer.claims.cursor.hint(position)
    else:
        claimer.claims.cursor.sweep()

    assert claimer.ids() == [task]

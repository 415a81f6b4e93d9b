"""The cursor: where the next claim goes on, and what brings it back."""

import random
import tracemalloc
from typing import Any

import pytest

from dispatcher.cursor import MOST_PRIORITIES, Cursor
from dispatcher.messages import Claim
from sql.connect import Connection
from sql.errors import DatabaseLost
from tests.dispatcher.given import a_claim, registered, terminate
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


def test_hints_that_nobody_takes_take_no_memory() -> None:
    cursor = Cursor()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for position in range(10**6, 10**6 + 10_000):
            cursor.hint(position)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < 10_000


def test_few_priorities_are_remembered_those_that_were_claimed_last() -> None:
    cursor = passed(*(at(priority, priority + 1) for priority in range(MOST_PRIORITIES + 5)))

    assert list(cursor.after_positions()) == list(range(5, MOST_PRIORITIES + 5))


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


def test_positions_are_forgotten_whichever_call_lost_the_database(database: Database, claimer: Claimer) -> None:
    calls.submit_all(database.connect(), 50)
    assert len(claimer.ids(50)) == 50
    assert claimer.ids(50) == []
    terminate(database, claimer.name)
    with pytest.raises(DatabaseLost):
        claimer.caller.call("running_tasks")

    # The server that took over draws positions anew.
    database.execute("alter sequence tally.task_position restart with 10")
    task = calls.submit_one(database.connect())

    assert claimer.ids() == [task]


def test_who_is_woken_for_what_another_left_finds_it_behind_its_cursor(database: Database) -> None:
    leaver, woken = Claimer(database, registered(database)), Claimer(database, registered(database))
    ear, late = database.connect(), database.connect()
    channel = database.value("select tally.work_channel(%s)", (woken.reached.dispatcher,))
    ear.execute(f'listen "{channel}"')
    with late.transaction():
        behind = [insert(late, 0)[0] for _ in range(20)]
        calls.submit_all(database.connect(), 5)
        assert len(woken.ids(6)) == 5
        assert woken.ids(6) == []
    assert leaver.ids(10) == behind[:10]

    (heard,) = ear.notifies(timeout=20, stop_after=1)
    woken.claims.cursor.hint(int(heard.payload))

    assert woken.ids(6) == behind[10:16]


def insert(connection: Connection, priority: int) -> tuple[int, int]:
    """Insert a task, as callers with a transaction of their own do; return its id and position."""
    (row,) = connection.execute(
        "insert into tally.task (token, queue, kind, input, priority) "
        "values (gen_random_uuid(), 'default', 'echo', '{}', %s) returning id, position",
        (priority,),
    ).fetchall()
    return row[0], row[1]


class Writer:
    """Somebody's transactions, which insert tasks and commit when they like."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._connection.set_autocommit(False)
        self._pending: dict[int, tuple[int, int]] = {}

    def insert(self, priority: int) -> None:
        task, position = insert(self._connection, priority)
        self._pending[task] = (priority, position)

    def commit(self) -> dict[int, tuple[int, int]]:
        """Return what is there now: task to (priority, position)."""
        self._connection.commit()
        committed, self._pending = self._pending, {}
        return committed


@pytest.mark.parametrize("sweeps", [False, True], ids=["hints", "sweeps"])
@pytest.mark.parametrize("seed", range(5))
def test_whoever_commits_when_no_task_is_left_behind_and_the_most_urgent_come_first(
    database: Database, claimer: Claimer, seed: int, sweeps: bool
) -> None:
    chance = random.Random(seed)
    writers = [Writer(database.connect()) for _ in range(4)]
    queued: dict[int, tuple[int, int]] = {}

    def commit(writer: Writer) -> None:
        committed = writer.commit()
        queued.update(committed)
        if committed and not sweeps:
            claimer.claims.cursor.hint(min(position for _, position in committed.values()))

    def take(free: int, *, is_exact: bool) -> int:
        taken: list[Any] = claimer.take(free)
        places = [(claim.priority, claim.position) for claim in taken]
        assert places == (sorted(queued.values())[:free] if is_exact else sorted(places))
        for claim in taken:
            del queued[claim.id]
        return len(taken)

    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1:
                chance.choice(writers).insert(chance.choice([-32768, -1, 0, 5, 32766]))
            case 2:
                commit(chance.choice(writers))
            case 3 if sweeps:
                claimer.claims.cursor.sweep()
                take(chance.randint(1, 8), is_exact=True)
            case _:
                take(chance.randint(1, 8), is_exact=not sweeps)
    for writer in writers:
        commit(writer)
    claimer.claims.cursor.sweep()
    while take(3, is_exact=True):
        pass

    assert queued == {}

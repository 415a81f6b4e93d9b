"""room_in_queue: the capacity is kept exactly, though the open tasks are seldom counted."""

import random

import pytest

from sql.connect import Connection
from tests.sql.calls import cancel, claim, finish, register, submit, submit_all, succeeded
from tests.support.database import Database


def set_max_open(database: Database, max_open: int | None) -> None:
    database.execute("update tally.queue set max_open = %s where name = 'default'", (max_open,))


def counted_at(database: Database) -> object:
    return database.value("select counted_at from tally.queue where name = 'default'")


def is_open(database: Database) -> int:
    return int(database.value("select count(*) from tally.task where state in ('QUEUED', 'RUNNING')"))


def submit_whole(connection: Connection, keys: list[str | None]) -> list[tuple[str, bool]]:
    """Submit tasks as one whole; return the verdict of each, and whether it has a row."""
    rows = connection.execute(
        """
        select verdict, id is not null
        from tally.submit_tasks(
            'default', (select array_agg(gen_random_uuid()) from generate_subscripts(%(keys)s::text[], 1)),
            array_fill('echo'::text, array[cardinality(%(keys)s::text[])]),
            array_fill('{}'::jsonb, array[cardinality(%(keys)s::text[])]), %(keys)s::text[], 100, true, true
        )
        """,
        {"keys": keys},
    ).fetchall()
    return [(verdict, has_row) for verdict, has_row in rows]


def test_nothing_is_counted_while_what_was_drawn_since_fits(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, 6)
    submit_all(connection, 4)
    for task in submit_all(connection, 1):
        cancel(connection, task)
    before = counted_at(database)

    submit_all(connection, 1)
    assert counted_at(database) == before

    submit_all(connection, 1)
    assert counted_at(database) == before
    assert is_open(database) == 6
    assert submit(connection) == [None]


def test_a_count_that_leaves_room_is_remembered(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, 10)
    for task in submit_all(connection, 9):
        cancel(connection, task)

    submit_all(connection, 3)

    assert database.rows("select counted_open, counted_at from tally.queue") == [(0, 9)]


def test_a_count_is_not_waited_for_where_somebody_holds_the_queue(database: Database) -> None:
    connection, holder = database.connect(), database.connect()
    set_max_open(database, 2)
    for task in submit_all(connection, 2):
        cancel(connection, task)

    with holder.transaction():
        holder.execute("select from tally.queue for update")
        assert submit(connection, 1) != [None]

    assert counted_at(database) == 0


def test_what_others_insert_without_asking_counts(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, 4)
    submit_all(connection, 1)

    database.execute(
        "insert into tally.task (token, queue, kind, input) "
        "select gen_random_uuid(), 'default', 'echo', '{}' from generate_series(1, 2)"
    )

    assert [task is not None for task in submit(connection, 2)] == [True, False]


@pytest.mark.parametrize("seed", range(8))
def test_as_many_are_admitted_as_an_exact_count_would_let_in(database: Database, seed: int) -> None:
    connection = database.connect()
    chance = random.Random(seed)
    dispatcher = register(connection)
    set_max_open(database, 5)

    for number in range(1, 60):
        match chance.randrange(4):
            case 0 | 1:
                wanted = chance.randint(1, 4)
                room = 5 - is_open(database)
                ids = [task for task in submit(connection, wanted) if task is not None]
                assert len(ids) == min(wanted, room)
            case 2:
                for taken in claim(connection, dispatcher, number, free=chance.randint(1, 3)):
                    if chance.random() < 0.7:
                        finish(connection, dispatcher, succeeded(taken.id))
            case _:
                # Positions are drawn elsewhere too, and for nothing.
                database.execute("select nextval('tally.task_position') from generate_series(1, %s)", (number % 3,))


def test_a_whole_batch_is_admitted_or_none_of_it(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, 5)
    submit_all(connection, 3)

    assert submit_whole(connection, [None, None, None]) == [("overloaded", False)] * 3
    assert submit_whole(connection, ["a", None, "b"]) == [("overloaded", False)] * 3
    assert is_open(database) == 3
    assert submit_whole(connection, [None, "a"]) == [("admitted", True)] * 2


def test_what_a_whole_batch_has_already_needs_no_room(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, 3)
    submit_whole(connection, ["a", "b"])

    assert submit_whole(connection, ["a", "b", "c"]) == [("admitted", True)] * 3
    assert submit_whole(connection, ["a", "b", "c"]) == [("admitted", True)] * 3
    assert submit_whole(connection, ["a", "d"]) == [("admitted", True), ("overloaded", False)]
    assert is_open(database) == 3

"""`remove_tasks`, `old_tasks` and `remove_dispatchers`: what is removed, what stays, and where a walk ends."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg.errors import InsufficientPrivilege

from sql.connect import Connection
from tests.sql import calls
from tests.support.database import Database, holding, role_of_its_own

KEEP = timedelta(days=7)
OLD = "clock_timestamp() - interval '8 days'"


def ended(database: Database, count: int) -> list[int]:
    """Submit so many tasks, run them to their end, and let eight days pass over them."""
    connection = database.connect()
    dispatcher = calls.register(connection)
    tasks = calls.submit_all(connection, count)
    calls.claim(connection, dispatcher, free=count)
    calls.finish(connection, dispatcher, *(calls.succeeded(task) for task in tasks))
    database.execute(f"update tally.task set created_at = {OLD}, started_at = {OLD}, finished_at = {OLD}")
    return tasks


def remove(connection: Connection, tasks: list[int]) -> list[str]:
    return [verdict for (verdict,) in calls.call(connection, "remove_tasks", ids=tasks, keep=KEEP)]


def walk(connection: Connection, after: int = 0, limit: int = 100) -> tuple[Any, ...]:
    """Walk once; where that got to, what is old, and whether it is over."""
    (row,) = calls.call(connection, "old_tasks", after=after, limit=limit, keep=KEEP)
    return row


def left(database: Database) -> list[int]:
    return [task for (task,) in database.rows("select id from tally.task order by id")]


def protect(database: Database, tasks: list[int], action: str = "raise exception 'kept for the auditors'") -> None:
    """Let a trigger do something before each of these is deleted."""
    database.execute(
        f"""
        create function protect() returns trigger language plpgsql
            as $$ begin if old.id = any (array{tasks}::bigint[]) then {action}; end if; return old; end $$;
        create trigger protect before delete on tally.task for each row execute function protect();
        """
    )


def test_what_ended_long_ago_is_removed(database: Database) -> None:
    tasks = ended(database, 3)

    assert remove(database.connect(), tasks) == ["removed"] * 3
    assert left(database) == []


def test_what_ended_lately_or_is_open_stays(database: Database) -> None:
    connection = database.connect()
    ended(database, 2)
    database.execute("update tally.task set finished_at = clock_timestamp() - interval '6 days' where id = 1")
    calls.submit_all(connection, 2)
    calls.claim(connection, calls.register(connection), free=1)
    database.execute(f"update tally.task set created_at = {OLD}")

    assert remove(connection, [1, 2, 3, 4, 99]) == ["kept", "removed", "kept", "kept", "kept"]
    assert left(database) == [1, 3, 4]


def test_a_row_that_somebody_holds_is_passed_over(database: Database) -> None:
    tasks = ended(database, 3)
    connection = database.connect()

    with holding(database, f"select from tally.task where id = {tasks[1]} for update"):
        assert remove(connection, tasks) == ["removed", "kept", "removed"]

    assert remove(connection, tasks) == ["kept", "removed", "kept"]


@pytest.mark.parametrize("protected", [[0], [4], [0, 1, 2, 3, 4], [1, 3]])
def test_rows_that_a_trigger_protects_keep_none_of_the_others(database: Database, protected: list[int]) -> None:
    tasks = ended(database, 5)
    protect(database, [tasks[place] for place in protected])

    verdicts = remove(database.connect(), tasks)

    expected = ["refused: kept for the auditors" if place in protected else "removed" for place in range(5)]
    assert verdicts == expected
    assert left(database) == [tasks[place] for place in protected]


def test_a_row_that_a_trigger_leaves_out_is_kept(database: Database) -> None:
    tasks = ended(database, 2)
    protect(database, tasks[:1], "return null")

    assert remove(database.connect(), tasks) == ["kept", "removed"]


def test_a_role_that_may_not_delete_is_told_so_and_not_row_by_row(database: Database) -> None:
    tasks = ended(database, 2)
    connection = database.connect()
    with role_of_its_own(database) as role:
        database.execute(f"revoke delete on tally.task from {role}")
        connection.execute(f"set role {role}".encode())

        with pytest.raises(InsufficientPrivilege):
            remove(connection, tasks)

        connection.execute("reset role")
    assert left(database) == tasks


def test_a_removed_tasks_key_is_free_again(database: Database) -> None:
    connection = database.connect()
    token = UUID(int=1)
    (first,) = calls.submit_rows(connection, [token], keys=["key"])
    calls.cancel(connection, first.id or 0)
    database.execute(f"update tally.task set finished_at = {OLD}")

    remove(connection, [first.id or 0])

    (second,) = calls.submit_rows(connection, [UUID(int=2)], keys=["key"])
    assert second.verdict == "admitted"
    assert second.id != first.id


def test_a_walk_goes_upward_by_steps_until_the_table_ends(database: Database) -> None:
    tasks = ended(database, 5)
    connection = database.connect()

    assert walk(connection, limit=3) == (tasks[2], tasks[:3], False)
    assert walk(connection, after=tasks[2], limit=3) == (tasks[4], tasks[3:], True)
    assert walk(connection, after=tasks[4], limit=3) == (None, [], True)


def test_a_walk_passes_over_open_rows_and_ends_at_a_row_made_lately(database: Database) -> None:
    connection = database.connect()
    ended(database, 3)
    (queued,) = calls.submit_all(connection, 1)
    database.execute(f"update tally.task set created_at = {OLD} where id = {queued}")

    assert walk(connection, limit=4) == (4, [1, 2, 3], False)

    calls.submit_all(connection, 2)
    assert walk(connection, limit=5) == (5, [1, 2, 3], True)


def test_a_row_made_before_the_clock_was_set_back_does_not_end_a_walk(database: Database) -> None:
    ended(database, 3)
    future = "clock_timestamp() + interval '1 year'"
    database.execute(f"update tally.task set created_at = {future}, finished_at = {future} where id = 2")

    assert walk(database.connect(), limit=3) == (3, [1, 3], False)


def test_only_dispatchers_that_stopped_long_ago_and_hold_nothing_are_removed(database: Database) -> None:
    connection = database.connect()
    living, lately, long_ago, holding_one = (calls.register(connection) for _ in range(4))
    calls.submit_all(connection, 1)
    calls.claim(connection, holding_one, free=1)
    stop = f"update tally.dispatcher set stopped_why = 'left', stopped_at = {OLD} where id = any (%s)"
    database.execute(stop, ([long_ago, holding_one],))
    calls.leave(connection, lately)

    assert calls.call(connection, "remove_dispatchers", keep=KEEP, limit=100) == [(1,)]

    kept = {id_ for (id_,) in database.rows("select id from tally.dispatcher")}
    assert kept == {living, lately, holding_one}

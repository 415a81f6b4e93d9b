"""release_due_tasks: who waits for a time stands where no claim looks, and is let go when that has come."""

import json
from typing import Any

import pytest
from psycopg import errors

from sql import statement
from sql.connect import Connection
from sql.errors import ClaimedAfterAll, translated
from tests.sql.calls import (
    Ended,
    call,
    cancel,
    claim,
    document,
    publish,
    refuse,
    register,
    release,
    retry,
    submit_all,
    submit_one,
)
from tests.support.database import Database, role_of_its_own

WAITING = """
insert into tally.task (token, queue, kind, input, attempt, attempts, priority, position, due_at, due_priority)
select
    gen_random_uuid(), 'default', 'echo', '{}', 1, '[]', 32767,
    (extract(epoch from waiting.due_at) * 1000000)::bigint, waiting.due_at, 3
from (
    select clock_timestamp() + %s::interval + nth * interval '1 millisecond' as due_at
    from generate_series(1, %s) as nth
) as waiting
returning id
"""


def waiting(database: Database, count: int, due: str) -> list[int]:
    """Put in tasks that wait, in order of their time, the first of them due in this interval."""
    return [task for (task,) in database.rows(WAITING, (due, count))]


@pytest.fixture
def connection(database: Database) -> Connection:
    return database.connect()


def test_what_is_due_is_itself_again_and_stands_at_the_end_in_the_order_of_its_time(
    database: Database, connection: Connection
) -> None:
    due = waiting(database, 5, "-1 hour")
    last = submit_one(connection)

    assert release(connection) == (5, None)

    look = "select id, priority, due_at, due_priority from tally.task where id <> %s order by position"
    rows = database.rows(look, (last,))
    assert rows == [(task, 3, None, None) for task in due]
    assert database.value("select min(position) filter (where priority = 3) > min(position) from tally.task")
    dispatcher = register(connection)
    assert [row.id for row in claim(connection, dispatcher, free=1)] == [last]
    assert sorted(row.id for row in claim(connection, dispatcher, 2)) == due


def test_what_is_not_due_stays_and_how_long_is_told(database: Database, connection: Connection) -> None:
    waiting(database, 2, "100 seconds")

    released, next_seconds = release(connection)

    assert released == 0
    assert 90 < (next_seconds or 0) < 101
    assert claim(connection, register(connection)) == []


def test_more_than_asked_for_are_left_and_due(database: Database, connection: Connection) -> None:
    due = waiting(database, 5, "-1 hour")

    released, next_seconds = release(connection, limit=2)

    assert released == 2
    assert next_seconds is not None
    assert next_seconds < 0
    assert [task for (task,) in database.rows("select id from tally.task where priority = 3 order by id")] == due[:2]


def test_another_queues_tasks_wait_for_its_own_dispatchers(database: Database, connection: Connection) -> None:
    call(connection, "set_max_open", queue="other", max_open=None)
    waiting(database, 1, "-1 hour")

    assert release(connection, queue="other") == (0, None)
    assert release(connection, queue="default") == (1, None)


def test_two_dispatchers_release_a_due_task_once(database: Database, connection: Connection) -> None:
    due = waiting(database, 3, "-1 hour")
    other = database.connect()

    with connection.transaction():
        assert release(connection, limit=2)[0] == 2
        assert release(other)[0] == 1

    assert release(other) == (0, None)
    assert sorted(row.id for row in claim(connection, register(connection))) == due
    assert database.value("select count(distinct position) from tally.task") == len(due)


def test_a_task_that_is_canceled_meanwhile_is_passed_over(database: Database, connection: Connection) -> None:
    (task,) = waiting(database, 1, "-1 hour")
    client = database.connect()

    with client.transaction():
        cancel(client, task)
        assert release(connection)[0] == 0

    assert release(connection) == (0, None)
    assert document(connection, task)["state"] == "CANCELED"


def test_a_waiting_task_is_seen_by_nobody_who_looks_for_something_to_claim(
    database: Database, connection: Connection
) -> None:
    (task,) = waiting(database, 1, "1 hour")
    dispatcher = register(connection)

    assert claim(connection, dispatcher) == []
    assert claim(connection, dispatcher, 2, only=[task]) == []
    assert claim(connection, dispatcher, 3, after_positions={"0": 7, "32767": 0}) == []
    assert call(connection, "claimable_tasks", queue="default", excluded=[], limit=10) == []
    assert call(connection, "pass_on_wake", dispatcher=dispatcher, queue="default") == [(0,)]


def test_a_refusal_that_comes_late_does_not_fail_a_task_that_waits(database: Database, connection: Connection) -> None:
    (task,) = waiting(database, 1, "1 hour")

    with pytest.raises(ClaimedAfterAll), translated():
        refuse(connection, register(connection), task, attempt=1)

    assert document(connection, task)["state"] == "QUEUED"


def pages(connection: Connection, call_: str) -> int:
    """Return how many pages of tables and indexes a call reads, once its plans are made."""
    for _ in range(2):
        connection.execute(call_.encode())
    ((plan,),) = connection.execute(f"explain (analyze, buffers, format json) {call_}".encode()).fetchall()
    found: list[dict[str, Any]] = json.loads(plan) if isinstance(plan, str) else plan
    return int(found[0]["Plan"]["Shared Hit Blocks"]) + int(found[0]["Plan"]["Shared Read Blocks"])


def test_tasks_that_wait_cost_a_claim_nothing(database: Database, connection: Connection) -> None:
    dispatcher = register(connection)
    looks = [
        f"select * from tally.claim_tasks('{dispatcher}', 1, 'default', 10)",
        f"select tally.pass_on_wake('{dispatcher}', 'default')",
        statement("queries/claimable_tasks") % {"queue": "'default'", "excluded": "'{}'", "limit": "8"},
    ]
    few = [pages(connection, look) for look in looks]

    waiting(database, 20_000, "1 hour")

    # The index has become two levels higher, and a page more of it may be read.
    many = [pages(connection, look) for look in looks]
    assert [more - less <= 6 for more, less in zip(many, few, strict=True)] == [True, True, True], (few, many)


@pytest.mark.parametrize("bad", [0, 2, 4])
def test_a_row_that_the_database_refuses_to_change_keeps_none_of_the_others(
    database: Database, connection: Connection, bad: int
) -> None:
    due = waiting(database, 5, "-1 hour")
    database.execute("create function refuse() returns trigger language plpgsql as $$begin raise 'not this one'; end$$")
    database.execute(
        f"create trigger refuse before update on tally.task for each row when (old.id = {due[bad]}) "
        "execute function refuse()"
    )

    released, next_seconds = release(connection)

    assert released == 4
    assert next_seconds is not None
    assert next_seconds < 0
    assert database.rows("select id from tally.task where priority = 32767") == [(due[bad],)]


def test_a_missing_privilege_is_said(database: Database) -> None:
    with role_of_its_own(database) as role:
        connection = database.connect()
        database.execute(f"revoke update on tally.task from {role}")
        connection.execute(f"set role {role}".encode())

        with pytest.raises(errors.InsufficientPrivilege):
            release(connection)


def test_a_task_waits_from_its_retry_to_its_release(database: Database, connection: Connection) -> None:
    publish(connection)
    dispatcher = register(connection)
    first, second = submit_all(connection, 2)
    claim(connection, dispatcher)
    retry(connection, dispatcher, Ended(id=first, delay=3600), Ended(id=second, delay=1800))

    released, next_seconds = release(connection)

    assert released == 0
    assert 1790 < (next_seconds or 0) <= 1800

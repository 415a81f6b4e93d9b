"""Who holds the notification queue, as readiness reports it, to a role that may see it all and to one that may not."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sql import statement
from sql.connect import Connection
from tests.support.database import Database
from tests.support.waiting import wait_until


@pytest.fixture
def blocker(database: Database) -> Iterator[int]:
    """A session that listens and sits in a transaction; the queue fills behind it, beyond what is worth a word."""
    held = database.connect("test-blocker")
    held.execute("listen anything")
    held.execute("begin")
    held.execute("select 1")
    database.execute("select pg_notify('fill', repeat('x', 7900) || n) from generate_series(1, 1500) as n")
    yield held.info.backend_pid
    held.close()
    wait_until(lambda: database.value("select pg_notification_queue_usage()") < 0.0001, "the queue has emptied")


@pytest.fixture
def stranger(database: Database) -> Iterator[Connection]:
    """A connection as a role that may use our schema and see nothing of other sessions."""
    connection = database.connect("test-stranger")
    connection.execute("create role stranger")
    connection.execute("grant usage on schema tally to stranger")
    connection.execute("grant select on all tables in schema tally to stranger")
    connection.execute("grant execute on all functions in schema tally to stranger")
    connection.execute("set role stranger")
    yield connection
    connection.execute("reset role")
    connection.execute("drop owned by stranger")
    connection.execute("drop role stranger")


def report(connection: Connection) -> dict[str, Any]:
    (text,) = connection.execute(statement("queries/readiness")).fetchone() or ("",)
    document: dict[str, Any] = json.loads(text)
    return document


def test_nobody_is_named_while_the_queue_is_as_good_as_empty(database: Database) -> None:
    idle = database.connect("test-idle")
    idle.execute("begin")
    idle.execute("select 1")

    assert report(database.connect())["notification_queue_holders"] == []


def test_the_session_that_keeps_the_queue_from_emptying_is_named(database: Database, blocker: int) -> None:
    later = database.connect("test-later")
    later.execute("begin")
    later.execute("select 1")

    found = report(database.connect())

    assert found["notification_queue_usage"] > 0.001
    first, second = found["notification_queue_holders"]
    assert first.pop("since").endswith("Z")
    assert first == {
        "pid": blocker,
        "application_name": "test-blocker",
        "user": "postgres",
        "database": database.name,
        "state": "idle in transaction",
    }
    assert second["pid"] == later.info.backend_pid


def test_a_role_that_may_not_look_into_sessions_is_told_who_is_in_a_transaction(
    database: Database, blocker: int, stranger: Connection
) -> None:
    (holder,) = report(stranger)["notification_queue_holders"]

    assert holder["pid"] == blocker
    assert (holder["since"], holder["state"]) == (None, None)

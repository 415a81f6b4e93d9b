"""Who threatens the queue, as readiness reports it, to a role that may see it all and to one that may not."""

import json
from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest
from psycopg.abc import QueryNoTemplate

from sql import statement
from sql.connect import Connection
from tests.sql.test_snapshot_holders import begin_many_transactions
from tests.support.database import Database, holding
from tests.support.program import RunProgram
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


def invent_a_threat(database: Database) -> None:
    """Let process 7, named seven, hold notifications."""
    database.execute(
        """
        create or replace function tally.notification_queue_holders(p_age interval) returns table (
            pid integer, application_name text, "user" text, database text, since timestamptz, state text, query text
        ) language sql as $$ select 7, 'seven', null, null, null::timestamptz, null, 'select 77' $$
        """
    )


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
        "query": "select 1",
    }
    assert second["pid"] == later.info.backend_pid


def test_a_role_that_may_not_look_into_sessions_is_told_who_is_in_a_transaction(
    database: Database, blocker: int, stranger: Connection
) -> None:
    (holder,) = report(stranger)["notification_queue_holders"]

    assert holder["pid"] == blocker
    assert (holder["since"], holder["state"]) == (None, None)
    assert holder["query"] == "<insufficient privilege>"


def snapshot_holders(connection: Connection) -> list[dict[str, Any]]:
    """Return whom readiness names, where a minute has passed for everybody."""
    text = statement("queries/readiness").replace("'1 minute'", "'0'")
    (document,) = connection.execute(cast(QueryNoTemplate, text)).fetchone() or ("",)
    found: list[dict[str, Any]] = json.loads(document)["snapshot_holders"]
    return found


def test_a_session_with_an_old_snapshot_is_named_with_its_query(database: Database) -> None:
    query = "-- A remark.\n-- Another.\nselect\n  42 as answer"
    with holding(database, "set transaction isolation level repeatable read", query) as pid:
        (holder,) = snapshot_holders(database.connect())

    assert holder.pop("since").endswith("Z")
    assert holder.pop("transactions") >= 0
    assert holder == {
        "pid": pid,
        "application_name": "holder",
        "user": "postgres",
        "database": database.name,
        "state": "idle in transaction",
        "query": "select 42 as answer",
    }


def test_a_session_that_has_written_and_does_not_commit_is_named(database: Database) -> None:
    with holding(database, "create table written ()") as pid:
        (holder,) = snapshot_holders(database.connect())

    assert holder["pid"] == pid


def test_a_long_query_is_cut(database: Database) -> None:
    query = f"select '{'x' * 1000}'"
    with holding(database, "set transaction isolation level repeatable read", query):
        (holder,) = snapshot_holders(database.connect())

    assert len(holder["query"]) == 200


def test_nobody_is_named_who_holds_no_snapshot_or_has_not_for_a_minute(database: Database) -> None:
    with holding(database, "select 1"):
        assert snapshot_holders(database.connect()) == []

    with holding(database, "set transaction isolation level repeatable read", "select 1"):
        assert report(database.connect())["snapshot_holders"] == []


def test_the_other_databases_sessions_are_not_named(database: Database) -> None:
    with psycopg.connect(database.server.url("postgres")) as elsewhere:
        elsewhere.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        elsewhere.execute("select 1")

        assert snapshot_holders(database.connect()) == []


def test_a_role_that_may_not_look_into_sessions_is_told_by_transactions(
    database: Database, stranger: Connection
) -> None:
    with holding(database, "create table written ()") as pid:
        assert snapshot_holders(stranger) == []

        begin_many_transactions(database)

        (holder,) = snapshot_holders(stranger)

    assert holder["pid"] == pid
    assert holder["transactions"] > 100_000
    assert (holder["since"], holder["query"]) == (None, "<insufficient privilege>")


def test_status_names_who_threatens_the_queue_and_with_which_query(database: Database, run_program: RunProgram) -> None:
    calm = run_program("sql", "status", ready=False)
    assert calm.wait() == 0
    assert "transactions" not in calm.output

    invent_a_threat(database)

    status = run_program("sql", "status", ready=False)
    assert status.wait() == 0
    assert "notifications  7    seven" in status.output
    assert "select 77" in status.output

"""publish_kinds: what dispatchers declare, as the last of them said it, under a revision that grows with a change."""

from uuid import uuid4

import pytest
from psycopg import errors
from psycopg.types.json import Json

from tests.sql.calls import call, publish, starts_waiting, submit_one, submit_rows
from tests.support.database import Database


def revisions(database: Database) -> dict[str, int]:
    return dict(database.rows("select kind, revision from tally.kind"))


def test_what_is_published_is_what_the_web_reads(database: Database) -> None:
    connection = database.connect()

    revision = publish(connection, "mail", queue="mails", input_schema={"type": "object"})

    assert revision == 1
    assert call(connection, "kinds") == [("mail", "mails", '{"type": "object"}', 1)]


def test_the_queue_of_a_kind_is_made_where_it_is_missing_and_an_existing_one_is_left_as_it_is(
    database: Database,
) -> None:
    connection = database.connect()
    database.execute("update tally.queue set max_open = 7")

    publish(connection, "mail", queue="mails")
    publish(connection, "echo")

    queues = database.rows("select name, max_open from tally.queue order by name")
    assert queues == [("default", 7), ("mails", 10000)]


def test_the_same_again_changes_nothing(database: Database) -> None:
    connection = database.connect()
    publish(connection, input_schema={"type": "object", "title": "é"}, time_limit_seconds=2.5)
    before = database.rows("select kind.*, kind.xmin::text from tally.kind")

    assert publish(connection, input_schema={"title": "é", "type": "object"}, time_limit_seconds=2.5) == 1
    assert database.rows("select kind.*, kind.xmin::text from tally.kind") == before


@pytest.mark.parametrize(
    "changed",
    [
        {"queue": "other"},
        {"input_schema": {}},
        {"slot": "process"},
        {"time_limit_seconds": 5},
        {"max_attempts": 4},
        {"on_crash": "retry"},
        {"backoff_first_seconds": 0},
        {"backoff_factor": 1.5},
        {"backoff_cap_seconds": 60.5},
    ],
    ids=str,
)
def test_whatever_differs_makes_a_new_revision_of_that_kind_alone(
    database: Database, changed: dict[str, object]
) -> None:
    connection = database.connect()
    publish(connection, "echo")
    publish(connection, "noop")
    publisher = uuid4()

    assert publish(connection, "echo", publisher, **changed) == 3

    (name,) = changed
    assert revisions(database) == {"echo": 3, "noop": 2}
    ((value, published_by),) = database.rows(f"select {name}, published_by from tally.kind where kind = 'echo'")
    assert (value, published_by) == (changed[name], publisher)


def test_each_of_several_that_changed_has_a_revision_of_its_own(database: Database) -> None:
    connection = database.connect()
    publish(connection, "c")
    declared = database.value("select to_json(declared) from tally.kind as declared")
    kinds = Json([{**declared, "kind": name, "slot": "process"} for name in ("b", "c", "a")])

    assert call(connection, "publish_kinds", dispatcher=uuid4(), kinds=kinds) == [(4,)]
    assert revisions(database) == {"a": 2, "b": 3, "c": 4}


def test_kinds_that_are_not_declared_any_more_stay(database: Database) -> None:
    connection = database.connect()
    publish(connection, "echo")

    assert call(connection, "publish_kinds", dispatcher=uuid4(), kinds=Json([])) == [(1,)]
    assert revisions(database) == {"echo": 1}


def test_without_any_kind_the_revision_is_0(database: Database) -> None:
    assert call(database.connect(), "publish_kinds", dispatcher=uuid4(), kinds=Json([])) == [(0,)]


def test_what_a_constraint_refuses_publishes_none_of_them(database: Database) -> None:
    connection = database.connect()

    with pytest.raises(errors.CheckViolation):
        publish(connection, slot="fiber", queue="new")

    assert revisions(database) == {}
    assert database.value("select count(*) from tally.queue") == 1


def test_who_publishes_second_waits_so_that_no_revision_is_seen_before_a_lower_one(database: Database) -> None:
    first = database.connect()

    with first.transaction():
        assert publish(first, "first") == 1
        rival = starts_waiting(database, lambda connection: publish(connection, "second"))

    assert rival.result(timeout=10) == 2


def test_a_submit_says_the_revision_that_its_transaction_sees(database: Database) -> None:
    connection, publisher = database.connect(), database.connect()
    assert [row.revision for row in submit_rows(connection, [uuid4(), uuid4()])] == [0, 0]

    with publisher.transaction():
        publish(publisher)
        assert [row.revision for row in submit_rows(connection, [uuid4()])] == [0]

    assert [row.revision for row in submit_rows(connection, [uuid4()])] == [1]
    tasks = Json([{"kind": "echo", "input": {}, "idempotency_key": None}])
    rows = call(connection, "submit_batch", tasks=tasks, queue="default", key_wait_ms=100, notify=True)
    assert [row[-1] for row in rows] == [1]


def test_what_a_retry_by_hand_is_made_of(database: Database) -> None:
    connection = database.connect()
    task = submit_one(connection)

    assert call(connection, "retry_source", id=task) == [("QUEUED", "echo", "default", '{"n": 0}')]
    assert call(connection, "retry_source", id=404) == []

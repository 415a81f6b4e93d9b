"""submit_tasks: a batch is admitted together, and the open count never passes max_open."""

import json
from uuid import uuid4

import pytest
from psycopg import errors

from sql.connect import Connection
from sql.errors import NotFound, translated
from tests.sql.calls import (
    call,
    cancel,
    claim,
    finish,
    register,
    starts_waiting,
    submit,
    submit_all,
    submit_rows,
    succeeded,
)
from tests.support.database import Database


def set_max_open(database: Database, most: int | None, queue: str = "default") -> None:
    call(database.connect(), "set_max_open", queue=queue, max_open=most)


def test_a_batch_is_answered_in_the_order_given_with_the_documents_as_stored(database: Database) -> None:
    connection = database.connect()
    tokens = [uuid4() for _ in range(50)]

    rows = submit_rows(connection, tokens)

    stored = database.rows("select token, id from tally.task order by position")
    assert [token for token, _ in stored] == tokens
    assert [(row.row_token, row.id) for row in rows] == stored
    assert {row.verdict for row in rows} == {"admitted"}
    first = json.loads(rows[0].document or "")
    assert first["created_at"].endswith("Z")
    del first["created_at"]
    assert first == {
        "id": stored[0][1],
        "kind": "echo",
        "queue": "default",
        "state": "QUEUED",
        "cancel_requested": False,
        "attempt": 0,
        "input": {"n": 0},
        "result": None,
        "error": None,
        "started_at": None,
        "finished_at": None,
        "due_at": None,
        "retry_of": None,
        "attempts": [],
    }


def test_what_exceeds_max_open_is_refused_from_the_end_and_leaves_no_row(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, 3)

    ids = submit(connection, 5)

    assert [task is not None for task in ids] == [True, True, True, False, False]
    assert submit(connection, 2) == [None, None]
    assert database.value("select count(*) from tally.task") == 3


def test_running_tasks_are_open_and_ended_ones_are_not(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, 2)
    dispatcher = register(connection)
    first, second = submit_all(connection, 2)
    claim(connection, dispatcher, free=1)

    assert submit(connection) == [None]
    finish(connection, dispatcher, succeeded(first))
    cancel(connection, second)
    assert len(submit_all(connection, 3)) == 2


def test_a_capacity_lowered_below_the_open_count_refuses_and_changes_nothing_else(database: Database) -> None:
    connection = database.connect()
    submit_all(connection, 4)
    set_max_open(database, 2)

    assert submit(connection, 2) == [None, None]
    assert database.value("select tally.open_count('default')") == 4


def test_a_queue_without_max_open_takes_everything(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, None)

    assert len(submit_all(connection, 10_050)) == 10_050


def test_each_queue_has_its_own_capacity(database: Database) -> None:
    connection = database.connect()
    set_max_open(database, 1)
    set_max_open(database, 2, "other")
    submit_all(connection, 1)

    assert [task is not None for task in submit(connection, 3, queue="other")] == [True, True, False]


def test_rival_submissions_never_pass_max_open(database: Database) -> None:
    first = database.connect()
    set_max_open(database, 3)

    with first.transaction():
        ours = submit(first, 2)
        rival = starts_waiting(database, lambda connection: submit(connection, 2))
    theirs = rival.result(timeout=10)

    assert all(ours)
    assert [task is not None for task in theirs] == [True, False]


def test_a_submission_that_was_rolled_back_gives_its_room_back(database: Database) -> None:
    first = database.connect()
    set_max_open(database, 1)

    with first.transaction(force_rollback=True):
        submit(first)
        rival = starts_waiting(database, submit)

    assert rival.result(timeout=10) != [None]


def test_submissions_to_another_queue_do_not_wait(database: Database) -> None:
    first, second = database.connect(), database.connect()
    set_max_open(database, 5, "other")

    with first.transaction():
        submit(first)
        assert submit(second, queue="other") != [None]


def test_an_unknown_queue_is_named(database: Database) -> None:
    with pytest.raises(NotFound, match="there is no queue named 'it''s'"), translated():
        submit(database.connect(), queue="it's")


def heard(connection: Connection) -> list[tuple[str, object]]:
    return [(each.channel, json.loads(each.payload)) for each in connection.notifies(timeout=0.2)]


def test_a_batch_notifies_once_with_the_queue_and_its_lowest_position(database: Database) -> None:
    connection, listener = database.connect(), database.connect()
    listener.execute("listen tally_work")

    submit_all(connection, 3)

    lowest = database.value("select min(position) from tally.task")
    assert heard(listener) == [("tally_work", {"queue": "default", "position": lowest})]


def test_nothing_is_notified_when_it_was_not_asked_for_or_nothing_was_admitted(database: Database) -> None:
    connection, listener = database.connect(), database.connect()
    listener.execute("listen tally_work")
    set_max_open(database, 1)

    submit(connection, notify=False)
    submit(connection)

    assert heard(listener) == []


def test_a_row_that_a_constraint_refuses_fails_the_whole_batch(database: Database) -> None:
    connection = database.connect()

    with pytest.raises(errors.CheckViolation) as caught:
        call(
            connection,
            "submit_tasks",
            queue="default",
            tokens=[uuid4(), uuid4()],
            kinds=["echo", "echo"],
            inputs=["{}", "[]"],
            keys=[None, None],
            key_wait_ms=100,
            notify=True,
            retry_of=None,
        )

    assert caught.value.diag.constraint_name == "input_is_an_object"
    assert database.value("select count(*) from tally.task") == 0


def test_an_empty_batch_is_no_error(database: Database) -> None:
    assert submit(database.connect(), 0) == []


def test_a_trigger_that_scans_a_table_of_its_own_is_not_compiled_for_it(database: Database) -> None:
    # Sequential scans are forbidden to our statements by their cost, and that must not make the trigger's dear.
    database.execute("create table rules as select name from generate_series(1, 100) as name")
    database.execute("create table compiled (setting text)")
    database.execute(
        "create function look() returns trigger language plpgsql as $$ begin"
        " perform from rules where name = new.id;"
        " insert into compiled values (current_setting('jit')); return new; end $$"
    )
    database.execute("create trigger look before insert on tally.task for each row execute function look()")

    submit(database.connect())

    assert database.rows("select * from compiled") == [("off",)]

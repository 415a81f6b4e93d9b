"""fail_lost_tasks: rows under a dispatcher's id that it does not hold."""

from tests.sql.calls import (
    call,
    cancel,
    claim,
    document,
    fail_lost,
    finish,
    publish,
    register,
    submit_all,
    submit_one,
    succeeded,
)
from tests.support.database import Database


def test_a_task_that_nobody_holds_fails_with_what_is_known(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    assert fail_lost(connection, dispatcher, (task, 1)) == [task]

    seen = document(connection, task)
    assert (seen["state"], seen["result"]) == ("FAILED", None)
    assert seen["error"] == {
        "reason": "the database lost this task's outcome",
        "detail": f"dispatcher {dispatcher} does not hold attempt 1 of this task",
    }


def test_where_a_cancel_was_accepted_it_ends_canceled(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    cancel(connection, task)

    assert fail_lost(connection, dispatcher, (task, 1)) == [task]
    seen = document(connection, task)
    assert (seen["state"], seen["error"]["reason"]) == ("CANCELED", "canceled")


def test_only_the_attempt_that_was_seen_under_this_id_and_still_running_is_written(database: Database) -> None:
    connection = database.connect()
    dispatcher, other = register(connection), register(connection)
    moved, foreign, ended, queued = submit_all(connection, 4)
    claim(connection, dispatcher, only=[moved, ended])
    claim(connection, other, only=[foreign])
    finish(connection, dispatcher, succeeded(ended))
    before = database.rows("select task.*, task.xmin::text from tally.task order by id")

    assert fail_lost(connection, dispatcher, (moved, 2), (foreign, 1), (ended, 1), (queued, 0), (404, 1)) == []
    assert database.rows("select task.*, task.xmin::text from tally.task order by id") == before


def test_a_locked_row_is_left_for_the_next_sweep(database: Database) -> None:
    connection, holder = database.connect(), database.connect()
    dispatcher = register(connection)
    first, second = submit_all(connection, 2)
    claim(connection, dispatcher)
    seen = call(connection, "running_tasks", dispatcher=dispatcher)

    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (first,))
        assert fail_lost(connection, dispatcher, *((task, attempt) for task, attempt in seen)) == [second]

    assert fail_lost(connection, dispatcher, (first, 1)) == [first]


def test_nothing_lost_is_no_error(database: Database) -> None:
    connection = database.connect()

    assert fail_lost(connection, register(connection)) == []


def test_a_kind_that_is_to_run_again_after_a_crash_gets_another_attempt(database: Database) -> None:
    connection = database.connect()
    publish(connection, on_crash="retry", max_attempts=2)
    dispatcher = register(connection)
    lost, last, canceled = tasks = submit_all(connection, 3)
    claim(connection, dispatcher)
    database.execute("update tally.task set attempt = 2 where id = %s", (last,))
    cancel(connection, canceled)

    written = fail_lost(connection, dispatcher, (lost, 1), (last, 2), (canceled, 1))

    assert sorted(written) == tasks
    states = [document(connection, task)["state"] for task in tasks]
    assert states == ["QUEUED", "FAILED", "CANCELED"]
    seen = document(connection, lost)
    assert seen["due_at"] is not None
    assert [each["error"]["reason"] for each in seen["attempts"]] == ["the database lost this task's outcome"]
    assert fail_lost(connection, dispatcher, (lost, 1)) == []

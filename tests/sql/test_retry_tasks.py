"""retry_tasks: an attempt has ended, and another follows where one is left."""

from uuid import UUID

import pytest

from sql.connect import Connection
from tests.sql.calls import (
    Ended,
    Retried,
    cancel,
    claim,
    condemn,
    document,
    failed,
    finish,
    publish,
    register,
    release,
    retry,
    settle,
    starts_waiting,
    submit_all,
    submit_one,
    succeeded,
)
from tests.support.database import Database

ROW = "select state, attempt, claimed_by, claim_number, started_at, finished_at, error, priority from tally.task"
AT_ONCE = Retried("written", "QUEUED", 0.0)


@pytest.fixture
def connection(database: Database) -> Connection:
    return database.connect()


def begun(connection: Connection, **declared: object) -> tuple[UUID, int]:
    """Publish the kind and claim a task of it; return dispatcher and task."""
    publish(connection, **declared)
    dispatcher = register(connection)
    task = submit_one(connection)
    assert [row.id for row in claim(connection, dispatcher)] == [task]
    return dispatcher, task


def test_a_task_with_an_attempt_left_is_queued_again_behind_what_came_meanwhile(
    database: Database, connection: Connection
) -> None:
    dispatcher, task = begun(connection)
    later = submit_one(connection)

    assert retry(connection, dispatcher, Ended(id=task, delay=0)) == {task: AT_ONCE}

    assert database.rows(f"{ROW} where id = %s", (task,)) == [("QUEUED", 1, None, None, None, None, None, 0)]
    again = claim(connection, dispatcher, 2)
    assert [(row.id, row.attempt) for row in sorted(again, key=lambda row: row.position)] == [(later, 1), (task, 2)]


def test_the_ended_attempt_is_kept_with_its_times_and_its_error(database: Database, connection: Connection) -> None:
    dispatcher, task = begun(connection)
    started = document(connection, task)["started_at"]

    retry(connection, dispatcher, Ended(id=task, error='{"reason": "no", "detail": "at all"}', delay=0))

    seen = document(connection, task)
    (kept,) = seen["attempts"]
    assert list(kept) == ["attempt", "started_at", "finished_at", "error"]
    assert (kept["attempt"], kept["started_at"], kept["error"]) == (1, started, {"reason": "no", "detail": "at all"})
    assert kept["finished_at"] >= started
    assert (seen["state"], seen["attempt"], seen["started_at"], seen["error"]) == ("QUEUED", 1, None, None)
    assert database.value("select attempts -> 0 ->> 'dispatcher' from tally.task") == str(dispatcher)


def test_a_task_waits_as_long_as_it_was_told(database: Database, connection: Connection) -> None:
    dispatcher, task = begun(connection)
    database.execute("update tally.task set priority = 3")

    answer = retry(connection, dispatcher, Ended(id=task, delay=3600))

    assert answer == {task: Retried("written", "QUEUED", 3600.0)}
    assert document(connection, task)["due_at"].endswith("Z")
    ((waits, as_position, priority, due_priority),) = database.rows(
        """
        select
            extract(epoch from due_at - clock_timestamp())::float8, (extract(epoch from due_at) * 1000000)::bigint
            = position, priority, due_priority
        from tally.task
        """
    )
    assert 3590 < waits <= 3600
    assert (as_position, priority, due_priority) == (True, 32767, 3)
    assert claim(connection, dispatcher, 2) == []


@pytest.mark.parametrize(("attempt", "longest"), [(1, 60), (2, 120), (3, 240), (5, 600), (99, 600)])
def test_untold_it_waits_for_the_kinds_backoff_capped_and_up_to_a_half_less(
    database: Database, connection: Connection, attempt: int, longest: float
) -> None:
    publish(connection, max_attempts=100)
    dispatcher = register(connection)
    tasks = submit_all(connection, 50)
    claim(connection, dispatcher)
    database.execute("update tally.task set attempt = %s", (attempt,))

    answers = retry(connection, dispatcher, *(Ended(id=task, attempt=attempt) for task in tasks))

    delays = [answer.due_seconds or 0 for answer in answers.values()]
    assert longest / 2 <= min(delays) < longest * 0.7
    assert longest * 0.8 < max(delays) <= longest


@pytest.mark.parametrize(
    "declared",
    [
        {"backoff_first_seconds": 86400, "backoff_factor": 1e9, "backoff_cap_seconds": 2592000},
        {"backoff_first_seconds": 1, "backoff_factor": 1, "backoff_cap_seconds": 1},
        {"backoff_first_seconds": 0, "backoff_cap_seconds": 0},
    ],
    ids=str,
)
def test_no_backoff_is_too_much_for_the_database(
    database: Database, connection: Connection, declared: dict[str, float]
) -> None:
    dispatcher, task = begun(connection, max_attempts=100, **declared)
    database.execute("update tally.task set attempt = 99")

    answer = retry(connection, dispatcher, Ended(id=task, attempt=99))[task]

    assert (answer.verdict, answer.state) == ("written", "QUEUED")
    cap = declared["backoff_cap_seconds"]
    assert cap / 2 <= (answer.due_seconds or 0) <= cap


@pytest.mark.parametrize("delay", [1e300, float("inf"), float("nan")])
def test_a_delay_beyond_all_times_is_thirty_years(database: Database, connection: Connection, delay: float) -> None:
    dispatcher, task = begun(connection)

    assert retry(connection, dispatcher, Ended(id=task, delay=delay)) == {task: Retried("written", "QUEUED", 1e9)}


@pytest.mark.parametrize("declared", [{"max_attempts": 1}, None], ids=["of one attempt", "not published"])
def test_without_an_attempt_left_it_fails_with_its_error(
    database: Database, connection: Connection, declared: dict[str, object] | None
) -> None:
    if declared is not None:
        publish(connection, **declared)
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    mine = Ended(id=task, error='{"reason": "no"}', delay=0)

    assert retry(connection, dispatcher, mine) == {task: Retried("written", "FAILED", None)}

    seen = document(connection, task)
    assert (seen["state"], seen["error"]) == ("FAILED", {"reason": "no"})
    assert [(each["attempt"], each["error"]) for each in seen["attempts"]] == [(1, {"reason": "no"})]
    assert retry(connection, dispatcher, mine) == {task: Retried("yours already", "FAILED", None)}


def test_after_its_last_attempt_all_of_them_are_told(connection: Connection) -> None:
    dispatcher, task = begun(connection)
    for attempt in (1, 2):
        assert retry(connection, dispatcher, Ended(id=task, attempt=attempt, delay=0)) == {task: AT_ONCE}
        claim(connection, dispatcher, attempt + 1)

    assert retry(connection, dispatcher, Ended(id=task, attempt=3)) == {task: Retried("written", "FAILED", None)}

    seen = document(connection, task)
    assert (seen["state"], seen["attempt"]) == ("FAILED", 3)
    assert [each["attempt"] for each in seen["attempts"]] == [1, 2, 3]
    assert seen["attempts"][-1] == {
        "attempt": 3,
        "started_at": seen["started_at"],
        "finished_at": seen["finished_at"],
        "error": seen["error"],
    }


def test_once_a_cancel_was_accepted_there_is_no_further_attempt(connection: Connection) -> None:
    dispatcher, task = begun(connection)
    cancel(connection, task)
    mine = Ended(id=task, ending="stopped", delay=0)

    assert retry(connection, dispatcher, mine) == {task: Retried("written", "CANCELED", None)}

    seen = document(connection, task)
    assert (seen["state"], seen["error"]) == ("CANCELED", {"reason": "canceled", "detail": "stopped"})
    assert retry(connection, dispatcher, mine) == {task: Retried("yours already", "CANCELED", None)}


def test_a_task_that_waits_is_canceled_at_once_and_is_itself_again(database: Database, connection: Connection) -> None:
    dispatcher, task = begun(connection)
    database.execute("update tally.task set priority = 3")
    retry(connection, dispatcher, Ended(id=task, delay=3600))

    seen = cancel(connection, task)

    assert (seen["state"], seen["due_at"]) == ("CANCELED", None)
    assert seen["error"] == {"reason": "canceled", "detail": "not started again"}
    assert [each["attempt"] for each in seen["attempts"]] == [1]
    assert database.rows("select priority, due_at, due_priority from tally.task") == [(3, None, None)]


def test_a_cancel_that_waits_behind_a_retry_cancels_the_task_that_waits(
    database: Database, connection: Connection
) -> None:
    dispatcher, task = begun(connection)

    with connection.transaction():
        retry(connection, dispatcher, Ended(id=task, delay=3600))
        canceling = starts_waiting(database, lambda rival: cancel(rival, task))

    assert canceling.result(timeout=10)["state"] == "CANCELED"


def test_a_retry_that_meets_a_cancel_under_way_is_locked_and_then_canceled(
    database: Database, connection: Connection
) -> None:
    dispatcher, task = begun(connection)
    client = database.connect()
    mine = Ended(id=task, delay=0)

    with client.transaction():
        cancel(client, task)
        assert retry(connection, dispatcher, mine) == {task: Retried("locked", None, None)}

    assert retry(connection, dispatcher, mine) == {task: Retried("written", "CANCELED", None)}


def test_a_retry_whose_reply_was_lost_is_yours_already(database: Database, connection: Connection) -> None:
    dispatcher, task = begun(connection)
    mine = Ended(id=task, delay=100)
    retry(connection, dispatcher, mine)
    before = database.rows("select task.*, task.xmin::text from tally.task")

    verdict, state, due_seconds = retry(connection, dispatcher, mine)[task]

    assert (verdict, state) == ("yours already", "QUEUED")
    assert 90 < (due_seconds or 0) <= 100
    assert database.rows("select task.*, task.xmin::text from tally.task") == before


@pytest.mark.parametrize("since", ["claimed", "finished", "attempted again", "canceled"])
def test_a_retry_whose_reply_was_lost_is_yours_already_whatever_became_of_the_task_since(
    database: Database, connection: Connection, since: str
) -> None:
    dispatcher, task = begun(connection)
    other = register(connection)
    mine = Ended(id=task, delay=0)
    retry(connection, dispatcher, mine)
    claim(connection, other)
    if since == "finished":
        finish(connection, other, succeeded(task, attempt=2))
    elif since == "attempted again":
        retry(connection, other, Ended(id=task, attempt=2, delay=3600))
    elif since == "canceled":
        cancel(connection, task)
    before = database.rows("select task.*, task.xmin::text from tally.task")

    assert retry(connection, dispatcher, mine) == {task: Retried("yours already", "QUEUED", 0.0)}
    assert database.rows("select task.*, task.xmin::text from tally.task") == before


def test_a_finish_after_the_retry_is_late(database: Database, connection: Connection) -> None:
    dispatcher, task = begun(connection)
    retry(connection, dispatcher, Ended(id=task, delay=0))

    assert finish(connection, dispatcher, succeeded(task)) == {task: "late"}
    claim(connection, dispatcher, 2)
    assert finish(connection, dispatcher, failed(task)) == {task: "late"}
    assert document(connection, task)["state"] == "RUNNING"
    assert finish(connection, dispatcher, succeeded(task, attempt=2)) == {task: "written"}


def test_a_retry_of_what_is_not_held_is_late_and_changes_nothing(database: Database, connection: Connection) -> None:
    publish(connection, on_crash="retry")
    dispatcher, other = register(connection), register(connection)
    foreign, moved, ended, queued, recovered = submit_all(connection, 5)
    claim(connection, other, only=[foreign])
    claim(connection, dispatcher, only=[moved, ended])
    finish(connection, dispatcher, succeeded(ended))
    dead = register(connection)
    claim(connection, dead, only=[recovered])
    assert condemn(connection, dead) == {recovered: "QUEUED"}
    before = database.rows("select task.*, task.xmin::text from tally.task order by id")

    answers = retry(
        connection,
        dispatcher,
        *(Ended(id=task, delay=0) for task in (foreign, ended, queued, 404)),
        Ended(id=moved, attempt=2, delay=0),
    )

    assert set(answers.values()) == {Retried("late", None, None)}
    assert retry(connection, dead, Ended(id=recovered)) == {recovered: Retried("late", None, None)}
    assert database.rows("select task.*, task.xmin::text from tally.task order by id") == before


def test_a_batch_is_answered_row_by_row(database: Database, connection: Connection) -> None:
    publish(connection, max_attempts=2)
    dispatcher = register(connection)
    again, last, canceled, done, locked = tasks = submit_all(connection, 5)
    claim(connection, dispatcher)
    database.execute("update tally.task set attempt = 2 where id = %s", (last,))
    cancel(connection, canceled)
    finish(connection, dispatcher, succeeded(done))
    holder = database.connect()

    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (locked,))
        answers = retry(
            connection, dispatcher, *(Ended(id=task, attempt=1 + (task == last), delay=0) for task in tasks)
        )

    assert answers == {
        again: AT_ONCE,
        last: Retried("written", "FAILED", None),
        canceled: Retried("written", "CANCELED", None),
        done: Retried("late", None, None),
        locked: Retried("locked", None, None),
    }
    assert retry(connection, dispatcher, Ended(id=locked, delay=0)) == {locked: AT_ONCE}


def test_nothing_to_retry_is_no_error(connection: Connection) -> None:
    assert retry(connection, register(connection)) == {}


def test_a_claim_of_the_next_attempt_is_settled_by_its_own_number(connection: Connection) -> None:
    dispatcher, task = begun(connection)
    retry(connection, dispatcher, Ended(id=task, delay=0))
    claim(connection, dispatcher, 2)

    assert settle(connection, dispatcher, 1) == []
    assert [(row.id, row.attempt) for row in settle(connection, dispatcher, 2)] == [(task, 2)]


def test_a_task_that_waited_is_claimed_with_its_attempts_counted_on(database: Database, connection: Connection) -> None:
    dispatcher, task = begun(connection)
    retry(connection, dispatcher, Ended(id=task, delay=0.001))
    database.execute("select pg_sleep(0.002)")

    assert release(connection)[0] == 1
    assert [(row.id, row.attempt, row.priority) for row in claim(connection, dispatcher, 2)] == [(task, 2, 0)]

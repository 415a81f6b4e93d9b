"""submit_tasks under idempotency keys: one key is one task, whoever asks, how often, and however full the queue is."""

from uuid import uuid4

import pytest
from psycopg import errors

from sql.connect import Connection
from tests.sql.calls import Submitted, call, cancel, submit_rows
from tests.support.database import Database


def ask(connection: Connection, *asked: tuple[str | None, str]) -> list[Submitted]:
    """Submit (key, input) pairs, each with a token of its own."""
    keys, inputs = [key for key, _ in asked], [text for _, text in asked]
    return submit_rows(connection, [uuid4() for _ in asked], keys, inputs)


def rows(database: Database) -> int:
    return int(database.value("select count(*) from tally.task"))


def test_the_same_key_again_is_the_same_task(database: Database) -> None:
    connection = database.connect()

    (first,) = ask(connection, ("k", '{"a": 1, "b": [2]}'))
    (again,) = ask(connection, ("k", '{ "b":[2],"a":1}'))

    assert first.verdict == "admitted"
    assert again == first
    assert rows(database) == 1


def test_the_same_key_again_is_answered_with_what_the_task_has_become(database: Database) -> None:
    connection = database.connect()
    (first,) = ask(connection, ("k", "{}"))
    assert first.id
    cancel(connection, first.id)

    (again,) = ask(connection, ("k", "{}"))

    assert again.id == first.id
    assert '"state":"CANCELED"' in str(again.document)


@pytest.mark.parametrize("other", ['{"a": 2}', '{"a": 1.0}', '{"a": "1"}', "{}"])
def test_another_input_under_the_key_is_refused_and_leaves_no_row(database: Database, other: str) -> None:
    connection = database.connect()
    (first,) = ask(connection, ("k", '{"a": 1}'))

    (again,) = ask(connection, ("k", other))

    assert (again.verdict, again.id) == ("key reused", first.id)
    assert rows(database) == 1


def test_another_kind_under_the_key_is_refused(database: Database) -> None:
    connection = database.connect()
    ask(connection, ("k", "{}"))
    database.execute("update tally.task set digest = tally.submission_digest('other', input)")

    assert ask(connection, ("k", "{}"))[0].verdict == "key reused"


def test_a_retry_by_hand_of_another_task_under_the_key_is_refused(database: Database) -> None:
    connection = database.connect()
    first, second = ask(connection, (None, "{}"), (None, "{}"))

    def retried(source: int | None) -> Submitted:
        (row,) = submit_rows(connection, [uuid4()], ["k"], ["{}"], retry_of=[source])
        return row

    made = retried(first.id)
    assert made.verdict == "admitted"
    assert retried(first.id) == made
    assert [(row.verdict, row.id) for row in (retried(second.id), retried(None))] == [("key reused", made.id)] * 2
    assert rows(database) == 3


def test_equal_keys_in_one_batch_are_one_task(database: Database) -> None:
    connection = database.connect()

    first, other, again, different = ask(connection, ("k", "{}"), ("l", "{}"), ("k", "{}"), ("k", '{"n": 1}'))

    assert first.id == again.id == different.id != other.id
    assert first.row_token == again.row_token
    assert [each.verdict for each in (first, other, again, different)] == ["admitted"] * 3 + ["key reused"]
    assert rows(database) == 2


def test_a_known_key_is_answered_by_a_full_queue_and_needs_no_room(database: Database) -> None:
    connection = database.connect()
    call(connection, "set_max_open", queue="default", max_open=2)
    (known,) = ask(connection, ("k", "{}"))

    again, new, full, twin = ask(connection, ("k", "{}"), (None, "{}"), ("l", "{}"), ("k", "{}"))

    assert again.id == twin.id == known.id
    assert (new.verdict, full.verdict, full.id) == ("admitted", "overloaded", None)
    assert rows(database) == 2


def test_equal_keys_count_once_against_the_capacity(database: Database) -> None:
    connection = database.connect()
    call(connection, "set_max_open", queue="default", max_open=2)

    answers = ask(connection, ("k", "{}"), ("k", "{}"), ("l", "{}"), ("m", "{}"))

    assert [each.verdict for each in answers] == ["admitted", "admitted", "admitted", "overloaded"]


def test_tasks_without_a_key_are_never_taken_for_one(database: Database) -> None:
    token = uuid4()

    answers = submit_rows(database.connect(), [token, uuid4(), uuid4()], [None, str(token), None], ["{}"] * 3)

    assert len({each.id for each in answers}) == 3


def test_a_key_held_by_an_open_transaction_is_waited_for_no_longer_than_it_may(database: Database) -> None:
    holder, connection = database.connect(), database.connect()

    with holder.transaction(force_rollback=True):
        ask(holder, (None, "{}"))
        holder.execute(
            "insert into tally.task (token, queue, kind, input, idempotency_key, digest)"
            " values (gen_random_uuid(), 'other', 'echo', '{}', 'k', 'x')"
        )
        holder.execute("select pg_advisory_unlock_all()")
        with pytest.raises(errors.LockNotAvailable):
            submit_to_other(connection)

    assert submit_to_other(connection)[0].verdict == "admitted"


def submit_to_other(connection: Connection) -> list[Submitted]:
    call(connection, "set_max_open", queue="other", max_open=None)
    return submit_rows(connection, [uuid4()], ["k"], ["{}"], queue="other", key_wait_ms=20)


def test_a_key_that_somebody_commits_meanwhile_is_theirs(database: Database) -> None:
    holder, connection = database.connect(), database.connect()
    theirs = holder.execute(
        "insert into tally.task (token, queue, kind, input, idempotency_key, digest)"
        " values (gen_random_uuid(), 'default', 'echo', '{}', 'k', tally.submission_digest('echo', '{}'))"
        " returning id"
    ).fetchone()

    assert (ask(connection, ("k", "{}"))[0].id,) == theirs


def test_the_wait_for_a_key_bounds_nothing_that_the_transaction_does_later(database: Database) -> None:
    connection = database.connect()

    with connection.transaction():
        before = connection.execute("show lock_timeout").fetchone()
        ask(connection, ("k", "{}"))

        # COMMIT waits too: for the lock that everybody on the server who notifies takes.
        assert connection.execute("show lock_timeout").fetchone() == before


def test_a_known_key_is_answered_by_a_transaction_that_standbys_must_confirm(database: Database) -> None:
    connection = database.connect()
    ask(connection, ("k", "{}"))

    with connection.transaction():
        ask(connection, ("k", "{}"))

        assert connection.execute("select pg_current_xact_id_if_assigned() is not null").fetchone() == (True,)

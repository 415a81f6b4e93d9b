"""refuse_claim: QUEUED -> FAILED for a task that the database lets nobody claim."""

from uuid import uuid4

import pytest

from sql.connect import Connection
from sql.errors import AlreadyTerminal, ClaimedAfterAll, Condemned, NotFound, translated
from tests.sql.calls import (
    Ended,
    cancel,
    claim,
    condemn,
    document,
    publish,
    refuse,
    register,
    retry,
    starts_waiting,
    submit_one,
)
from tests.support.database import Database


def test_a_refused_task_fails_without_having_been_started(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)

    refuse(connection, dispatcher, task, "a trigger said no")

    seen = document(connection, task)
    assert seen["state"] == "FAILED"
    assert seen["error"] == {"reason": "worker could not claim task", "detail": "a trigger said no"}
    assert (seen["attempt"], seen["started_at"], seen["result"]) == (0, None, None)
    assert seen["finished_at"] is not None


def test_a_task_claimed_after_all_is_left_alone(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    with pytest.raises(ClaimedAfterAll), translated():
        refuse(connection, dispatcher, task)

    assert document(connection, task)["state"] == "RUNNING"


def test_a_task_that_has_ended_is_left_alone(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    before = cancel(connection, task)

    with pytest.raises(AlreadyTerminal), translated():
        refuse(connection, dispatcher, task)

    assert document(connection, task) == before


def test_an_unknown_task_is_named(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)

    with pytest.raises(NotFound, match="there is no task 404"), translated():
        refuse(connection, dispatcher, 404)


def test_a_dispatcher_that_is_stopped_or_unknown_refuses_nothing(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    condemn(connection, dispatcher)

    for each in (dispatcher, uuid4()):
        with pytest.raises(Condemned), translated():
            refuse(connection, each, task)

    assert document(connection, task)["state"] == "QUEUED"


def test_a_refusal_waits_for_a_cancel_under_way_and_then_changes_nothing(database: Database) -> None:
    canceler = database.connect()
    dispatcher = register(canceler)
    task = submit_one(canceler)

    def rival(connection: Connection) -> None:
        with translated():
            refuse(connection, dispatcher, task)

    with canceler.transaction():
        cancel(canceler, task)
        late = starts_waiting(database, rival)

    assert isinstance(late.exception(timeout=10), AlreadyTerminal)
    assert document(canceler, task)["error"]["detail"] == "not started"


def test_a_refusal_of_what_was_attempted_since_changes_nothing(database: Database) -> None:
    connection = database.connect()
    late, other = register(connection), register(connection)
    task = submit_one(connection)
    publish(connection)
    claim(connection, other)
    retry(connection, other, Ended(id=task, delay=0))

    with pytest.raises(ClaimedAfterAll), translated():
        refuse(connection, late, task, attempt=0)

    assert document(connection, task)["state"] == "QUEUED"
    refuse(connection, late, task, attempt=1)
    assert document(connection, task)["state"] == "FAILED"

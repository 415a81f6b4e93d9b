"""cancel_task: at once while QUEUED, a request while RUNNING, refused after the end."""

import pytest

from sql.connect import Connection
from sql.errors import AlreadyTerminal, NotFound, translated
from tests.sql.calls import (
    call,
    cancel,
    claim,
    document,
    finish,
    register,
    starts_waiting,
    submit_all,
    submit_one,
    succeeded,
)
from tests.support.database import Database


def test_a_queued_task_is_canceled_at_once(database: Database) -> None:
    connection = database.connect()
    task = submit_one(connection)

    answer = cancel(connection, task)

    assert answer == document(connection, task)
    assert (answer["state"], answer["attempt"], answer["started_at"]) == ("CANCELED", 0, None)
    assert answer["error"] == {"reason": "canceled", "detail": "not started"}
    assert answer["finished_at"] is not None


def test_a_running_task_is_asked_to_end_and_stays_running(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task, _ = submit_all(connection, 2)
    claim(connection, dispatcher)

    answer = cancel(connection, task)

    assert answer == document(connection, task)
    assert (answer["state"], answer["cancel_requested"], answer["error"]) == ("RUNNING", True, None)
    assert call(connection, "cancel_requests", dispatcher=dispatcher) == [(task,)]


def test_asking_again_while_running_is_answered_alike_and_keeps_the_first_time(database: Database) -> None:
    connection = database.connect()
    task = submit_one(connection)
    claim(connection, register(connection))

    answers = [cancel(connection, task)]
    asked_at = database.value("select cancel_requested_at from tally.task")
    answers.append(cancel(connection, task))

    assert answers[0] == answers[1]
    assert database.value("select cancel_requested_at from tally.task") == asked_at


@pytest.mark.parametrize("state", ["SUCCEEDED", "CANCELED"])
def test_a_task_that_has_ended_is_refused_by_its_state_and_not_changed(database: Database, state: str) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    if state == "CANCELED":
        cancel(connection, task)
    finish(connection, dispatcher, succeeded(task))
    before = document(connection, task)

    with pytest.raises(AlreadyTerminal, match=f"task {task} is already {state}"), translated():
        cancel(connection, task)

    assert document(connection, task) == before


def test_an_unknown_task_is_named(database: Database) -> None:
    with pytest.raises(NotFound, match="there is no task 404"), translated():
        cancel(database.connect(), 404)


def test_only_the_cancel_of_a_running_task_notifies_each_time_with_its_id(database: Database) -> None:
    connection, listener = database.connect(), database.connect()
    listener.execute("listen tally_cancel")
    running, queued = submit_all(connection, 2)
    claim(connection, register(connection), free=1)

    for task in (queued, running, running):
        cancel(connection, task)

    heard = [(each.channel, each.payload) for each in listener.notifies(timeout=0.2)]
    assert heard == [("tally_cancel", str(running))] * 2


def test_a_cancel_behind_a_claim_under_way_becomes_a_request(database: Database) -> None:
    claimer = database.connect()
    dispatcher = register(claimer)
    task = submit_one(claimer)

    with claimer.transaction():
        claim(claimer, dispatcher)
        waiting = starts_waiting(database, lambda connection: cancel(connection, task))
    answer = waiting.result(timeout=10)

    assert (answer["state"], answer["cancel_requested"]) == ("RUNNING", True)


def test_a_claim_beside_a_cancel_under_way_passes_the_task_over(database: Database) -> None:
    canceler, claimer = database.connect(), database.connect()
    dispatcher = register(canceler)
    task = submit_one(canceler)

    with canceler.transaction():
        cancel(canceler, task)
        assert claim(claimer, dispatcher, 1) == []

    assert claim(claimer, dispatcher, 2) == []
    assert document(claimer, task)["state"] == "CANCELED"


def test_a_cancel_behind_a_finish_under_way_is_refused(database: Database) -> None:
    finisher = database.connect()
    dispatcher = register(finisher)
    task = submit_one(finisher)
    claim(finisher, dispatcher)

    def rival(connection: Connection) -> object:
        with translated():
            return cancel(connection, task)

    with finisher.transaction():
        finish(finisher, dispatcher, succeeded(task))
        late = starts_waiting(database, rival)

    assert isinstance(late.exception(timeout=10), AlreadyTerminal)
    assert document(finisher, task)["cancel_requested"] is False

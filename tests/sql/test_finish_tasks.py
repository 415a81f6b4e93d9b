"""finish_tasks: what a claim ended in, one verdict for each row."""

from uuid import uuid4

import pytest
from psycopg import errors

from tests.sql.calls import (
    Outcome,
    cancel,
    claim,
    condemn,
    document,
    failed,
    finish,
    register,
    starts_waiting,
    submit_all,
    submit_one,
    succeeded,
)
from tests.support.database import Database

CANCELED_MEANWHILE = [
    succeeded(0),
    failed(0),
    Outcome(id=0, state="CANCELED", error='{"reason": "canceled"}', ending="stopped"),
    Outcome(id=0, state="CANCELED", ending="not started"),
]


def test_a_success_keeps_its_result(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    verdicts = finish(connection, dispatcher, succeeded(task, result='{"words": 2}'))

    seen = document(connection, task)
    assert verdicts == {task: "written"}
    assert (seen["state"], seen["result"], seen["error"]) == ("SUCCEEDED", {"words": 2}, None)
    assert seen["finished_at"] >= seen["started_at"] >= seen["created_at"]


def test_a_result_of_null_is_a_result(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    assert finish(connection, dispatcher, succeeded(task, result="null")) == {task: "written"}
    assert document(connection, task)["state"] == "SUCCEEDED"
    assert finish(connection, dispatcher, succeeded(task, result="null")) == {task: "yours already"}


def test_a_failure_keeps_its_reason_and_no_result(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    error = '{"reason": "task raised ValueError", "detail": "no"}'

    verdicts = finish(connection, dispatcher, Outcome(id=task, state="FAILED", result="7", error=error))

    seen = document(connection, task)
    assert verdicts == {task: "written"}
    assert (seen["state"], seen["result"]) == ("FAILED", None)
    assert seen["error"] == {"reason": "task raised ValueError", "detail": "no"}


@pytest.mark.parametrize("outcome", CANCELED_MEANWHILE, ids=lambda outcome: f"{outcome.state} {outcome.ending}")
def test_once_a_cancel_was_accepted_every_outcome_is_canceled_and_says_how_the_body_ended(
    database: Database, outcome: Outcome
) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    cancel(connection, task)
    mine = Outcome(id=task, state=outcome.state, result=outcome.result, error=outcome.error, ending=outcome.ending)

    verdicts = finish(connection, dispatcher, mine)

    seen = document(connection, task)
    assert verdicts == {task: "written"}
    assert (seen["state"], seen["result"], seen["cancel_requested"]) == ("CANCELED", None, True)
    assert seen["error"] == {"reason": "canceled", "detail": outcome.ending}
    assert finish(connection, dispatcher, mine) == {task: "yours already"}


@pytest.mark.parametrize("outcome", [succeeded(0), failed(0)], ids=lambda outcome: outcome.state)
def test_the_same_outcome_again_is_yours_already_and_changes_nothing(database: Database, outcome: Outcome) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    mine = Outcome(id=task, state=outcome.state, result=outcome.result, error=outcome.error)
    finish(connection, dispatcher, mine)
    before = database.rows("select task.*, task.xmin::text from tally.task")

    assert finish(connection, dispatcher, mine) == {task: "yours already"}
    assert database.rows("select task.*, task.xmin::text from tally.task") == before


def test_a_late_finish_changes_nothing(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    condemn(connection, dispatcher)
    before = document(connection, task)

    assert finish(connection, dispatcher, succeeded(task)) == {task: "late"}
    assert document(connection, task) == before


def test_another_outcome_of_the_same_claim_is_late(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    finish(connection, dispatcher, succeeded(task, result="7"))

    assert finish(connection, dispatcher, succeeded(task, result="8")) == {task: "late"}
    assert finish(connection, dispatcher, failed(task)) == {task: "late"}
    assert document(connection, task)["result"] == 7


def test_a_finish_names_attempt_and_dispatcher(database: Database) -> None:
    connection = database.connect()
    dispatcher, other = register(connection), register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    assert finish(connection, other, succeeded(task)) == {task: "late"}
    assert finish(connection, dispatcher, succeeded(task, attempt=2)) == {task: "late"}
    assert finish(connection, dispatcher, succeeded(task, attempt=0)) == {task: "late"}
    assert document(connection, task)["state"] == "RUNNING"


def test_a_task_that_was_never_claimed_or_is_not_there_is_late(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)

    verdicts = finish(connection, dispatcher, succeeded(task), succeeded(404), succeeded(task + 1, attempt=0))

    assert set(verdicts.values()) == {"late"}
    assert document(connection, task)["state"] == "QUEUED"


def test_a_locked_row_is_skipped_and_the_others_are_written(database: Database) -> None:
    connection, holder = database.connect(), database.connect()
    dispatcher = register(connection)
    first, second = submit_all(connection, 2)
    claim(connection, dispatcher)

    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (first,))
        verdicts = finish(connection, dispatcher, succeeded(first), succeeded(second))

    assert verdicts == {first: "locked", second: "written"}
    assert finish(connection, dispatcher, succeeded(first)) == {first: "written"}


def test_one_call_writes_many_and_answers_each(database: Database) -> None:
    connection = database.connect()
    dispatcher, other = register(connection), register(connection)
    good, bad, canceled, again, foreign = submit_all(connection, 5)
    claim(connection, dispatcher, free=4)
    claim(connection, other)
    cancel(connection, canceled)
    finish(connection, dispatcher, succeeded(again))

    verdicts = finish(
        connection,
        dispatcher,
        succeeded(foreign),
        succeeded(canceled),
        failed(bad),
        succeeded(again),
        succeeded(good),
    )

    assert verdicts == {
        good: "written",
        bad: "written",
        canceled: "written",
        again: "yours already",
        foreign: "late",
    }
    states = dict(database.rows("select id, state from tally.task"))
    assert states == {
        good: "SUCCEEDED",
        bad: "FAILED",
        canceled: "CANCELED",
        again: "SUCCEEDED",
        foreign: "RUNNING",
    }


def test_nothing_to_finish_is_no_error(database: Database) -> None:
    connection = database.connect()

    assert finish(connection, register(connection)) == {}


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "BROKEN"])
def test_a_state_that_no_claim_ends_in_is_refused(database: Database, state: str) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    with pytest.raises(errors.CheckViolation):
        finish(connection, dispatcher, Outcome(id=task, state=state))

    assert document(connection, task)["state"] == "RUNNING"


def test_a_condemnation_that_waits_for_nobody_leaves_the_finish_that_holds_the_row(database: Database) -> None:
    finisher, judge = database.connect(), database.connect()
    dispatcher = register(finisher)
    task = submit_one(finisher)
    claim(finisher, dispatcher)

    with finisher.transaction():
        assert finish(finisher, dispatcher, succeeded(task)) == {task: "written"}
        assert condemn(judge, dispatcher) == {}

    assert document(judge, task)["state"] == "SUCCEEDED"


def test_cancel_and_finish_do_not_deadlock_and_the_finish_wins_when_it_was_first(database: Database) -> None:
    finisher = database.connect()
    dispatcher = register(finisher)
    task = submit_one(finisher)
    claim(finisher, dispatcher)

    with finisher.transaction():
        finish(finisher, dispatcher, succeeded(task))
        late = starts_waiting(database, lambda connection: cancel(connection, task))

    assert isinstance(late.exception(timeout=10), errors.Error)
    assert document(finisher, task)["state"] == "SUCCEEDED"


def test_a_finish_under_a_cancel_that_is_not_committed_comes_back_and_ends_canceled(database: Database) -> None:
    canceler, finisher = database.connect(), database.connect()
    dispatcher = register(canceler)
    task = submit_one(canceler)
    claim(canceler, dispatcher)

    with canceler.transaction():
        cancel(canceler, task)
        assert finish(finisher, dispatcher, succeeded(task)) == {task: "locked"}

    assert finish(finisher, dispatcher, succeeded(task)) == {task: "written"}
    assert document(finisher, task)["state"] == "CANCELED"


def test_many_finishes_of_the_same_rows_write_each_once(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    tasks = submit_all(connection, 20)
    claim(connection, dispatcher)
    rival = database.connect()

    with connection.transaction():
        ours = finish(connection, dispatcher, *(succeeded(task) for task in tasks[:10]))
        theirs = finish(rival, dispatcher, *(succeeded(task) for task in reversed(tasks)))

    assert set(ours.values()) == {"written"}
    assert [theirs[task] for task in tasks] == ["locked"] * 10 + ["written"] * 10


def test_a_stranger_cannot_finish(database: Database) -> None:
    connection = database.connect()
    task = submit_one(connection)
    claim(connection, register(connection))

    assert finish(connection, uuid4(), succeeded(task)) == {task: "late"}


def test_each_row_of_a_mixed_batch_has_its_own_verdict(database: Database) -> None:
    connection, holder = database.connect(), database.connect()
    dispatcher = register(connection)
    already, held, canceled, new, queued = submit_all(connection, 5)
    claim(connection, dispatcher, free=4)
    finish(connection, dispatcher, succeeded(already))
    cancel(connection, canceled)

    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (held,))
        verdicts = finish(connection, dispatcher, *map(succeeded, (already, held, canceled, new, queued, 404)))

    assert verdicts == {
        already: "yours already",
        held: "locked",
        canceled: "written",
        new: "written",
        queued: "late",
        404: "late",
    }

"""claim_tasks: QUEUED -> RUNNING, in order, fenced."""

from uuid import uuid4

import pytest
from psycopg import errors

from sql.connect import Connection
from sql.errors import ClaimFenced, Condemned, translated
from tests.sql.calls import (
    Claimed,
    beat,
    call,
    cancel,
    claim,
    condemn,
    document,
    leave,
    register,
    settle,
    starts_waiting,
    submit_all,
    submit_one,
)
from tests.support.database import Database


def test_a_claim_takes_the_task_and_says_all_that_its_body_needs(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)

    (claimed,) = claim(connection, dispatcher, 5)

    position = database.value("select position from tally.task")
    assert claimed == Claimed(task, 1, "echo", '{"n": 0}', 0, position)
    row = database.rows("select state, attempt, claimed_by, claim_number, started_at is not null from tally.task")
    assert row == [("RUNNING", 1, dispatcher, 5, True)]


def test_no_more_than_the_free_slots_are_claimed_and_nothing_twice(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    tasks = submit_all(connection, 5)

    takes = [[claimed.id for claimed in claim(connection, dispatcher, number, free=2)] for number in range(1, 5)]

    assert takes == [tasks[:2], tasks[2:4], tasks[4:], []]


def test_priority_comes_before_position(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    last, first, second, third = submit_all(connection, 4)
    database.execute("update tally.task set priority = 1 where id = %s", (last,))
    database.execute("update tally.task set priority = -1 where id = any(%s)", ([first, second],))

    one_at_a_time = [claim(connection, dispatcher, number, free=1)[0].id for number in (1, 2)]
    the_rest = [claimed.id for claimed in claim(connection, dispatcher, 3)]

    assert one_at_a_time == [first, second]
    assert the_rest == [third, last]


def test_the_cursor_passes_over_what_is_at_or_below_it_of_its_priority_only(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    urgent, _, second, third = submit_all(connection, 4)
    database.execute("update tally.task set priority = -1 where id = %s", (urgent,))
    position = database.value("select position from tally.task where id = %s", (second,))

    claimed = claim(connection, dispatcher, after_positions={"0": position})

    assert [row.id for row in claimed] == [urgent, third]


def test_excluded_tasks_are_passed_over(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    first, second, third = submit_all(connection, 3)

    claimed = claim(connection, dispatcher, excluded=[first, third])

    assert [row.id for row in claimed] == [second]


def test_only_the_tasks_asked_for_are_taken(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    _, second, third = submit_all(connection, 3)

    claimed = claim(connection, dispatcher, only=[third, second, 999])

    assert [row.id for row in claimed] == [second, third]
    assert claim(connection, dispatcher, 2, only=[]) == []


def test_candidates_are_listed_in_claiming_order_without_a_lock(database: Database) -> None:
    connection = database.connect()
    last, first, second = submit_all(connection, 3)
    database.execute("update tally.task set priority = 1 where id = %s", (last,))
    holder = database.connect()

    with holder.transaction():
        holder.execute("select from tally.task for update")
        listed = call(connection, "claimable_tasks", queue="default", excluded=[second], limit=5)

    assert listed == [(first, 0), (last, 0)]


def test_another_queue_is_left_alone(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    submit_one(connection)

    assert claim(connection, dispatcher, queue="other") == []


def test_a_paused_queue_gives_nothing_until_it_is_resumed(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    call(connection, "pause_queue", queue="default")

    assert claim(connection, dispatcher) == []
    call(connection, "resume_queue", queue="default")
    assert [row.id for row in claim(connection, dispatcher)] == [task]


def test_a_row_that_somebody_holds_is_skipped(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    first, second = submit_all(connection, 2)
    holder = database.connect()

    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (first,))
        while_held = claim(connection, dispatcher, 1)
    afterwards = claim(connection, dispatcher, 2)

    assert [row.id for row in while_held] == [second]
    assert [row.id for row in afterwards] == [first]


def test_a_canceled_task_is_not_claimed(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    cancel(connection, submit_one(connection))

    assert claim(connection, dispatcher) == []


def test_two_claims_at_once_share_the_tasks_out(database: Database) -> None:
    first, second = database.connect(), database.connect()
    dispatcher, other = register(first), register(second)
    tasks = submit_all(first, 4)

    with first.transaction():
        ours = claim(first, dispatcher, free=2)
        theirs = claim(second, other, free=4)

    assert sorted(row.id for row in ours + theirs) == tasks
    assert len(theirs) == 2


def test_a_claim_that_was_rolled_back_leaves_no_trace(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)

    with connection.transaction(force_rollback=True):
        claim(connection, dispatcher)

    assert document(connection, task)["state"] == "QUEUED"
    assert claim(connection, dispatcher, 2)[0].attempt == 1


def test_an_unknown_dispatcher_claims_nothing(database: Database) -> None:
    connection = database.connect()
    submit_one(connection)

    with pytest.raises(Condemned), translated():
        claim(connection, uuid4())


def test_a_dispatcher_that_left_claims_nothing(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    submit_one(connection)
    leave(connection, dispatcher)

    with pytest.raises(Condemned), translated():
        claim(connection, dispatcher)


def test_a_claim_waits_behind_a_condemnation_and_is_then_refused(database: Database) -> None:
    judge = database.connect()
    dispatcher = register(judge)
    task = submit_one(judge)

    def rival(connection: Connection) -> list[Claimed]:
        with translated():
            return claim(connection, dispatcher)

    with judge.transaction():
        condemn(judge, dispatcher)
        late = starts_waiting(database, rival)

    assert isinstance(late.exception(timeout=10), Condemned)
    assert document(judge, task)["state"] == "QUEUED"


def test_a_claim_goes_on_when_the_condemnation_is_rolled_back(database: Database) -> None:
    judge = database.connect()
    dispatcher = register(judge)
    task = submit_one(judge)

    with judge.transaction(force_rollback=True):
        condemn(judge, dispatcher)
        rival = starts_waiting(database, lambda connection: claim(connection, dispatcher))

    assert [row.id for row in rival.result(timeout=10)] == [task]


def test_a_claim_does_not_wait_for_a_beat_nor_a_beat_for_a_claim(database: Database) -> None:
    first, second = database.connect(), database.connect()
    dispatcher = register(first)
    submit_all(first, 2)

    with first.transaction():
        beat(first, dispatcher)
        assert len(claim(second, dispatcher, 1, free=1)) == 1
    with first.transaction():
        assert len(claim(first, dispatcher, 2, free=1)) == 1
        assert beat(second, dispatcher) == 2


def test_a_late_claim_with_a_settled_number_is_refused(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    settle(connection, dispatcher, 7)

    for number in (7, 6):
        with pytest.raises(ClaimFenced), translated():
            claim(connection, dispatcher, number)

    assert document(connection, task)["state"] == "QUEUED"
    assert [row.id for row in claim(connection, dispatcher, 8)] == [task]


def test_a_trigger_that_refuses_a_row_fails_the_whole_claim(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    _, bad = submit_all(connection, 2)
    database.execute("create function refuse() returns trigger language plpgsql as $$begin raise 'not this one'; end$$")
    database.execute(
        f"create trigger refuse before update on tally.task for each row when (old.id = {bad}) "
        "execute function refuse()"
    )

    with pytest.raises(errors.RaiseException):
        claim(connection, dispatcher)

    assert database.rows("select distinct state, attempt from tally.task") == [("QUEUED", 0)]

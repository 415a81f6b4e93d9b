"""The terminal write against a real database: together, alone, after a lost reply, late, and never at all."""

from collections.abc import Callable
from time import monotonic

import pytest

from dispatcher.messages import Outcome, Refusal, Verdict
from sql.states import TaskState
from tests.dispatcher.given import (
    allow_writes,
    claimed,
    failed,
    refuse_writes,
    registered,
    state,
    succeeded,
    terminate,
)
from tests.dispatcher.writer import Writer, await_lock_or_round, error_of
from tests.sql import calls
from tests.support.database import Database
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until


def test_what_finishes_together_is_written_together(database: Database, writer: Writer) -> None:
    tasks = claimed(database, writer.dispatcher, 50)
    writer.put(*(succeeded(task, result=f'{{"n": {task}}}') for task in tasks))

    with writer.works():
        assert writer.verdicts(50) == dict.fromkeys(tasks, Verdict.WRITTEN)

    assert database.value("select count(distinct xmin::text) from tally.task") == 1
    assert database.rows("select id, state, result from tally.task order by id") == [
        (task, "SUCCEEDED", {"n": task}) for task in tasks
    ]


def test_any_json_value_is_stored_as_it_is(database: Database, writer: Writer) -> None:
    results = [
        "null",
        "false",
        '"null"',
        '"NULL"',
        '" a, b "',
        "[]",
        "{}",
        '"\\u001f\\n"',
        '"{,}"',
        '"\\\\\\""',
        '{"a": 1e300}',
        '"é"',
    ]
    tasks = claimed(database, writer.dispatcher, len(results))
    writer.put(*map(succeeded, tasks, results))

    with writer.works():
        assert writer.verdicts(len(tasks)) == dict.fromkeys(tasks, Verdict.WRITTEN)

    for task, result in zip(tasks, results, strict=True):
        same = "select result = %s::jsonb from tally.task where id = %s"
        assert database.value(same, (result, task)) is True, result


def test_a_failure_keeps_its_reason_and_an_accepted_cancel_wins(database: Database, writer: Writer) -> None:
    plain, canceled = claimed(database, writer.dispatcher, 2)
    calls.cancel(database.connect(), canceled)
    writer.put(failed(plain, "card declined"), succeeded(canceled))

    with writer.works():
        writer.verdicts(2)

    assert (state(database, plain), error_of(database, plain)) == (
        "FAILED",
        {"reason": "card declined", "detail": None},
    )
    assert (state(database, canceled), error_of(database, canceled)) == (
        "CANCELED",
        {"reason": "canceled", "detail": "returned"},
    )


def test_a_row_that_somebody_holds_is_come_back_to_and_the_others_do_not_wait(
    database: Database, writer: Writer
) -> None:
    tasks = claimed(database, writer.dispatcher, 3)
    held, others = tasks[1], [tasks[0], tasks[2]]
    holder = database.connect()
    with writer.works():
        with holder.transaction():
            holder.execute("select from tally.task where id = %s for update", (held,))
            writer.put(*map(succeeded, tasks))
            assert writer.verdicts(2) == dict.fromkeys(others, Verdict.WRITTEN)

            (later,) = claimed(database, writer.dispatcher, 1)
            writer.put(succeeded(later))
            assert writer.verdicts(1) == {later: Verdict.WRITTEN}
            assert state(database, held) == "RUNNING"

        assert writer.verdicts(1) == {held: Verdict.WRITTEN}
    assert writer.acknowledged_nothing_more()


@pytest.mark.parametrize(
    "action",
    [
        "raise exception 'no'",
        "raise exception 'no' using errcode = '42501'",
        "raise exception 'no' using errcode = '55P03'",
        "raise exception 'no' using errcode = '40001'",
        "raise exception 'no' using errcode = '53100'",
        "raise exception 'no' using errcode = 'XX000'",
        "perform pg_terminate_backend(pg_backend_pid())",
    ],
)
def test_a_row_that_fails_alone_for_a_while_holds_up_nobody_and_is_written_once_that_is_over(
    database: Database, writer: Writer, action: str
) -> None:
    tasks = claimed(database, writer.dispatcher, 4)
    refuse_writes(database, f"old.id = {tasks[2]}", action)
    with writer.works():
        writer.put(*map(succeeded, tasks))
        assert set(writer.verdicts(3)) == {tasks[0], tasks[1], tasks[3]}
        await_lock_or_round(writer)
        later = claimed(database, writer.dispatcher, 2)
        holder = database.connect()
        with holder.transaction():
            holder.execute("select from tally.task where id = %s for update", (later[0],))
            writer.put(*map(succeeded, later))
            assert writer.verdicts(1) == {later[1]: Verdict.WRITTEN}
        assert writer.verdicts(1) == {later[0]: Verdict.WRITTEN}, "in the second lane, too, one waits for no other"

        allow_writes(database)

        assert writer.verdicts(1) == {tasks[2]: Verdict.WRITTEN}
    assert state(database, tasks[2]) == "SUCCEEDED"
    assert writer.acknowledged_nothing_more()


def test_a_row_that_runs_out_of_time_alone_holds_up_nobody(database: Database) -> None:
    writer = Writer(database, registered(database, statement_seconds=0.3))
    tasks = claimed(database, writer.dispatcher, 3)
    refuse_writes(database, f"old.id = {tasks[0]}", "perform pg_sleep(10)")
    with writer.works():
        writer.put(*map(succeeded, tasks))
        assert set(writer.verdicts(2)) == {tasks[1], tasks[2]}
        await_lock_or_round(writer)
        (later,) = claimed(database, writer.dispatcher, 1)
        writer.put(succeeded(later))
        assert writer.verdicts(1) == {later: Verdict.WRITTEN}

        allow_writes(database)

        assert writer.verdicts(1) == {tasks[0]: Verdict.WRITTEN}
    assert writer.turns > 3


def test_however_many_rows_of_a_batch_are_slow_what_ends_later_waits_for_one_try_of_them(database: Database) -> None:
    writer = Writer(database, registered(database, statement_seconds=0.5))
    *slow, later = claimed(database, writer.dispatcher, 9)
    refuse_writes(database, f"old.id <> {later}", "perform pg_sleep(10)")
    writer.put(*map(succeeded, slow))
    with writer.works():
        wait_until(lambda: writer.turns > 1, "the batch is being written")
        began = monotonic()
        writer.put(succeeded(later))

        assert writer.verdicts(1) == {later: Verdict.WRITTEN}
        assert monotonic() - began < 2.5, "eight tries would take 4 s"

        allow_writes(database)
        assert writer.verdicts(8) == dict.fromkeys(slow, Verdict.WRITTEN)


def test_in_the_second_lane_one_slow_row_at_most_goes_before_the_others(database: Database) -> None:
    writer = Writer(database, registered(database, statement_seconds=0.2))
    held, *slow = claimed(database, writer.dispatcher, 6)
    database.execute("create sequence tries")
    refuse_writes(database, f"old.id <> {held}", "perform nextval('tries'); perform pg_sleep(10)")
    holder = database.connect()
    with writer.works():
        with holder.transaction():
            holder.execute("select from tally.task where id = %s for update", (held,))
            writer.put(*map(succeeded, [*slow, held]))
            wait_until(lambda: writer.outcomes.lanes[1].pending == 6, "all are with the second lane")
            tried = database.value("select last_value from tries")

        assert writer.verdicts(1) == {held: Verdict.WRITTEN}

        assert database.value("select last_value from tries") <= tried + 2
        allow_writes(database)
        assert writer.verdicts(5) == dict.fromkeys(slow, Verdict.WRITTEN)


def test_what_comes_to_the_second_lane_is_tried_before_the_slow_rows_that_are_there(database: Database) -> None:
    writer = Writer(database, registered(database, statement_seconds=0.5))
    newcomer, *slow = claimed(database, writer.dispatcher, 9)
    refuse_writes(database, f"old.id <> {newcomer}", "perform pg_sleep(10)")
    writer.put(*map(succeeded, slow))
    with writer.works():
        wait_until(lambda: writer.outcomes.lanes[1].pending == len(slow), "the slow rows are in the second lane")
        holder = database.connect()
        with holder.transaction():
            holder.execute("select from tally.task where id = %s for update", (newcomer,))
            writer.put(succeeded(newcomer))
            wait_until(lambda: writer.outcomes.lanes[1].pending > len(slow), "the held row is there too")
        began = monotonic()

        assert writer.verdicts(1) == {newcomer: Verdict.WRITTEN}
        assert monotonic() - began < 2, "eight tries would take 4 s"

        allow_writes(database)
        assert writer.verdicts(8) == dict.fromkeys(slow, Verdict.WRITTEN)


def test_a_result_that_only_the_server_refuses_fails_its_task_and_no_other(database: Database, writer: Writer) -> None:
    good, bad = claimed(database, writer.dispatcher, 2)
    with writer.works():
        writer.put(succeeded(good), succeeded(bad, result='"\\u0000"'))
        told = {report.id: (report, verdict) for report, verdict in (writer.next(), writer.next())}

    assert told[good][1] == told[bad][1] == Verdict.WRITTEN
    assert (state(database, good), state(database, bad)) == ("SUCCEEDED", "FAILED")
    assert error_of(database, bad) == {
        "reason": "result cannot be stored",
        "detail": "the database does not take it as jsonb",
    }
    report = told[bad][0]
    assert isinstance(report, Outcome)
    assert report.state is TaskState.FAILED, "what is told must be what was written"


def test_a_reply_lost_after_the_commit_is_acknowledged_as_ours_and_written_once(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    writer = Writer(database, registered(database, url=way.url_for(database.url)))
    (task,) = claimed(database, writer.dispatcher, 1)
    writer.first.ready()
    with writer.works():
        way.mute()
        writer.put(succeeded(task))
        wait_until(lambda: state(database, task) == "SUCCEEDED", "the outcome is committed")
        finished_at = database.value("select finished_at from tally.task")
        assert writer.acknowledged_nothing_more()

        way.cut()
        way.thaw()

        assert writer.verdicts(1) == {task: Verdict.ALREADY}
    assert database.value("select finished_at from tally.task") == finished_at


def test_a_connection_that_dies_in_between_is_opened_again(database: Database, writer: Writer) -> None:
    first, second = claimed(database, writer.dispatcher, 2)
    with writer.works():
        writer.put(succeeded(first))
        writer.verdicts(1)
        assert terminate(database, writer.reached.name("outcomes")) == 1

        writer.put(succeeded(second))

        assert writer.verdicts(1) == {second: Verdict.WRITTEN}


def test_while_the_database_cannot_be_reached_outcomes_wait_and_then_go_together(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    writer = Writer(database, registered(database, url=way.url_for(database.url)))
    tasks = claimed(database, writer.dispatcher, 5)
    way.refuse()
    with writer.works():
        writer.put(*map(succeeded, tasks[:3]))
        wait_until(lambda: writer.turns > 3, "some tries failed")
        writer.put(*map(succeeded, tasks[3:]))
        assert writer.acknowledged_nothing_more()

        way.accept()

        assert writer.verdicts(5) == dict.fromkeys(tasks, Verdict.WRITTEN)


def test_a_database_that_became_read_only_is_left_for_a_new_connection(database: Database, writer: Writer) -> None:
    (task,) = claimed(database, writer.dispatcher, 1)
    writer.first.ready().execute("set default_transaction_read_only = on")
    with writer.works():
        writer.put(succeeded(task))

        assert writer.verdicts(1) == {task: Verdict.WRITTEN}


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_outcome_that_comes_late_changes_nothing_and_frees_its_slot(
    database: Database, writer: Writer, attempt: int
) -> None:
    (task,) = claimed(database, writer.dispatcher, 1)
    if attempt == 1:
        calls.condemn(database.connect(), writer.dispatcher)
    before = database.rows("select * from tally.task")
    with writer.works():
        writer.put(succeeded(task, attempt=attempt))

        assert writer.verdicts(1) == {task: Verdict.LATE}
    assert database.rows("select * from tally.task") == before


def test_an_outcome_of_a_row_that_is_gone_is_late(database: Database, writer: Writer) -> None:
    (task,) = claimed(database, writer.dispatcher, 1)
    database.execute("delete from tally.task")
    with writer.works():
        writer.put(succeeded(task))

        assert writer.verdicts(1) == {task: Verdict.LATE}


def test_a_refusal_is_written(database: Database, writer: Writer) -> None:
    task = calls.submit_one(database.connect())
    with writer.works():
        writer.put(Refusal(task, "not this one"))

        assert writer.verdicts(1) == {task: Verdict.WRITTEN}
    assert state(database, task) == "FAILED"
    assert error_of(database, task) == {"reason": "worker could not claim task", "detail": "not this one"}


def test_a_refusal_that_is_refused_itself_is_written_once_that_is_over(database: Database, writer: Writer) -> None:
    task = calls.submit_one(database.connect())
    refuse_writes(database, "true")
    with writer.works():
        writer.put(Refusal(task, "not this one"))
        await_lock_or_round(writer)

        allow_writes(database)

        assert writer.verdicts(1) == {task: Verdict.WRITTEN}


@pytest.mark.parametrize("event", ["canceled", "claimed", "gone"])
def test_a_refusal_of_a_task_that_is_queued_no_more_is_late(database: Database, writer: Writer, event: str) -> None:
    connection = database.connect()
    task = calls.submit_one(connection)
    if event == "canceled":
        calls.cancel(connection, task)
    elif event == "claimed":
        calls.claim(connection, calls.register(connection))
    else:
        database.execute("delete from tally.task")
    before = database.rows("select * from tally.task")
    with writer.works():
        writer.put(Refusal(task, "not this one"))

        assert writer.verdicts(1) == {task: Verdict.LATE}
    assert database.rows("select * from tally.task") == before


def test_a_stopping_dispatcher_drops_the_refusals_that_are_not_written(database: Database, writer: Writer) -> None:
    task = calls.submit_one(database.connect())
    refuse_writes(database, "true")
    with writer.works():
        writer.put(Refusal(task, "not this one"))
        await_lock_or_round(writer)

        writer.outcomes.drop_refusals.set()

        assert writer.verdicts(1) == {task: Verdict.DROPPED}
    assert state(database, task) == "QUEUED"


def test_a_condemned_dispatcher_fails_nothing_that_it_could_not_claim(database: Database, writer: Writer) -> None:
    connection = database.connect()
    task = calls.submit_one(connection)
    calls.condemn(connection, writer.dispatcher)
    with writer.works():
        writer.put(Refusal(task, "not this one"))

        assert writer.verdicts(1) == {task: Verdict.DROPPED}
    assert state(database, task) == "QUEUED"


def test_giving_up_ends_both_lanes_with_what_is_not_written_unacknowledged(database: Database, writer: Writer) -> None:
    tasks = claimed(database, writer.dispatcher, 2)
    refuse_writes(database, "true")
    with writer.works():
        writer.put(*map(succeeded, tasks))
        wait_until(lambda: writer.outcomes.lanes[1].pending == 2, "both are with the second lane")

    assert writer.acknowledged_nothing_more()
    assert {state(database, task) for task in tasks} == {"RUNNING"}


def test_giving_up_ends_the_lanes_while_the_database_is_away(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    writer = Writer(database, registered(database, url=way.url_for(database.url)))
    way.refuse()
    with writer.works():
        writer.put(succeeded(1), Refusal(2, "not this one"))
        wait_until(lambda: writer.turns > 2, "some tries failed")

    assert writer.acknowledged_nothing_more()


def test_waiting_for_work_makes_turns(writer: Writer) -> None:
    with writer.works():
        wait_until(lambda: writer.turns >= 2, "turns are made while there is nothing to write")


def test_a_batch_that_is_not_answered_in_time_is_written_one_by_one(
    database: Database, proxy: Callable[[str, int], Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    writer = Writer(database, registered(database, statement_seconds=0.3, url=way.url_for(database.url)))
    tasks = claimed(database, writer.dispatcher, 3)
    writer.first.ready()
    for task in tasks:
        writer.put(succeeded(task))
    way.mute()
    with writer.works():
        wait_until(lambda: "outcomes.failed tasks=3" in caplog.text, "the batch is split")
        way.cut()
        way.thaw()

        assert writer.verdicts(3) == dict.fromkeys(tasks, Verdict.ALREADY)

"""The fixture `tally`, as people who write tasks use it; here on a clone of the suite's own template."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from dispatcher import Backoff, Context, Retry, task
from dispatcher.kinds import KINDS
from dispatcher.lanes import Locked
from dispatcher.testing import runner
from dispatcher.testing.databases import Databases
from dispatcher.testing.tally import Tally, tally_on
from sql.errors import AlreadyTerminal, NotFound
from sql.states import TaskState
from tests.support.server import TEMPLATE, TestServer


@pytest.fixture
def tally_server(server: TestServer) -> Databases:
    server.bring_up()
    return Databases(server.url("postgres"), TEMPLATE)


@pytest.fixture
def looking(tally: Tally) -> Iterator[psycopg.Connection]:
    """A connection to the test's database."""
    with psycopg.connect(tally.url, autocommit=True) as connection:
        yield connection


def test_the_environment_leads_to_the_tests_own_database(tally: Tally) -> None:
    assert os.environ["DATABASE_URL"] == tally.url
    assert "DATABASE_DIRECT_URL" not in os.environ
    assert tally.tasks() == []


def test_what_bodies_submit_is_run_too(tally: Tally) -> None:
    @task("count.down")
    def count_down(given: dict[str, Any]) -> object:
        if given["from"]:
            count_down.submit({"from": given["from"] - 1})
        return given["from"]

    first = count_down.submit({"from": 3})

    ran = tally.run_pending()

    assert [task.result for task in ran] == [3, 2, 1, 0]
    assert tally.assert_succeeded(first, result=3) == ran[0]


def test_it_runs_in_the_order_in_which_a_dispatcher_claims(tally: Tally) -> None:
    @task("order")
    def order(given: dict[str, Any]) -> object:
        return None

    ids = [order.submit({}, priority=priority) for priority in (1, 0, 1, -1)]

    assert [task.id for task in tally.run_pending()] == [ids[3], ids[1], ids[0], ids[2]]


def test_a_queue_that_never_ends_is_said_to(tally: Tally) -> None:
    @task("again")
    def again(given: dict[str, Any]) -> object:
        return again.submit({})

    again.submit({})

    with pytest.raises(AssertionError, match="queue default is not at its end after 5 attempts; the next: task 6 is Q"):
        tally.run_pending(attempts=5)
    assert len(tally.tasks(state=TaskState.SUCCEEDED)) == 5


def test_as_many_attempts_as_it_takes_are_enough(tally: Tally) -> None:
    @task("few")
    def few(given: dict[str, Any]) -> object:
        return None

    few.submit({})
    few.submit({})

    assert len(tally.run_pending(attempts=2)) == 2


def test_another_queue_is_left_alone(tally: Tally) -> None:
    @task("mail", queue="mails")
    def mail(given: dict[str, Any]) -> object:
        return None

    tally.publish()
    task_id = mail.submit({})

    assert tally.run_pending() == []
    tally.assert_queued("mail", 1, queue="mails")
    assert [task.id for task in tally.run_pending("mails")] == [task_id]


def test_retries_wait_for_no_time_and_every_attempt_is_kept(tally: Tally) -> None:
    @task("stubborn", max_attempts=4, backoff=Backoff(first=3600, factor=2, cap=86400))
    def stubborn(given: dict[str, Any], context: Context) -> object:
        if context.attempt == 1:
            raise Retry(after=timedelta(days=1), reason="not yet")
        if context.attempt == 2:
            raise OSError("away")
        return context.attempt

    task_id = stubborn.submit({})

    tally.run_pending()

    ended = tally.assert_succeeded(task_id, result=3)
    assert [(attempt.attempt, attempt.reason) for attempt in ended.attempts] == [
        (1, "not yet"),
        (2, "task raised OSError"),
        (3, None),
    ]


def test_retries_end_with_the_last_attempt(tally: Tally) -> None:
    @task("hopeless", max_attempts=3)
    def hopeless(given: dict[str, Any]) -> object:
        raise OSError("away")

    task_id = hopeless.submit({})

    tally.run_pending()

    ended = tally.assert_failed(task_id, "task raised OSError", detail="away")
    assert [attempt.attempt for attempt in ended.attempts] == [1, 2, 3]


def test_between_two_attempts_a_task_is_due_when_its_kind_says(tally: Tally) -> None:
    @task("later", max_attempts=2)
    def later(given: dict[str, Any]) -> object:
        raise Retry(after=3600)

    task_id = later.submit({})
    began = datetime.now(UTC)

    assert tally.run_next() == tally.assert_queued("later", 1)[0]

    due_at = tally.task(task_id).due_at
    assert due_at is not None
    assert timedelta(minutes=59) < due_at - began < timedelta(minutes=61)
    tally.run_next()
    tally.assert_failed(task_id)


def test_what_waits_comes_after_what_is_there_and_the_first_due_first(tally: Tally) -> None:
    began: list[tuple[str, int]] = []

    @task("waits", max_attempts=2)
    def waits(given: dict[str, Any], context: Context) -> object:
        began.append((given["name"], context.attempt))
        if context.attempt == 1:
            raise Retry(after=given["seconds"])
        return None

    for name, seconds in (("long", 7200), ("short", 3600), ("none", 0)):
        waits.submit({"name": name, "seconds": seconds})

    tally.run_pending()

    first = [("long", 1), ("short", 1), ("none", 1)]
    assert began == [*first, ("none", 2), ("short", 2), ("long", 2)]


def test_a_canceled_task_is_not_run(tally: Tally) -> None:
    @task("noted")
    def noted(given: dict[str, Any]) -> object:
        raise AssertionError("it was run")

    task_id = noted.submit({})

    assert tally.cancel(task_id).state is TaskState.CANCELED
    assert tally.run_pending() == []
    assert tally.assert_canceled(task_id).detail == "not started"
    with pytest.raises(AlreadyTerminal):
        tally.cancel(task_id)


def test_a_body_hears_of_a_cancel_at_once_and_no_attempt_follows(tally: Tally) -> None:
    @task("heard", max_attempts=3)
    def heard(given: dict[str, Any], context: Context) -> object:
        assert tally.cancel(context.task_id).cancel_requested
        context.raise_if_canceled()
        return "unheard"

    task_id = heard.submit({})

    tally.run_pending()

    assert tally.assert_canceled(task_id).detail == "stopped"
    assert tally.task(task_id).attempt == 1


def test_a_time_limit_raises_the_flag(tally: Tally) -> None:
    @task("slow", time_limit=0.05)
    def slow(given: dict[str, Any], context: Context) -> object:
        context.sleep(60)
        return "slept"

    task_id = slow.submit({})

    tally.run_pending()

    tally.assert_failed(task_id, "time limit of 0.05 s passed", detail="stopped")


def test_a_kind_of_a_process_slot_runs_in_this_process(tally: Tally) -> None:
    @task("pid", slot="process")
    def pid(given: dict[str, Any]) -> object:
        return os.getpid()

    task_id = pid.submit({})

    tally.run_pending()

    tally.assert_succeeded(task_id, result=os.getpid())


def test_async_bodies_run(tally: Tally) -> None:
    @task("async")
    async def body(given: dict[str, Any]) -> object:
        return "awaited"

    task_id = body.submit({})

    tally.run_pending()

    tally.assert_succeeded(task_id, result="awaited")


def test_an_async_test_runs_them_in_another_thread(tally: Tally) -> None:
    @task("async")
    async def body(given: dict[str, Any]) -> object:
        return "awaited"

    async def tested() -> None:
        task_id = body.submit({})
        await asyncio.to_thread(tally.run_pending)
        tally.assert_succeeded(task_id, result="awaited")

    asyncio.run(tested())


def test_whatever_a_body_raises_is_its_outcome(tally: Tally) -> None:
    @task("exit")
    def leave(given: dict[str, Any]) -> object:
        sys.exit(3)

    task_id = leave.submit({})

    tally.run_pending()

    tally.assert_failed(task_id, "task raised SystemExit")


def test_ctrl_c_ends_the_test_and_not_only_the_body(tally: Tally) -> None:
    @task("interrupted")
    def interrupted(given: dict[str, Any]) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return None

    interrupted.submit({})
    before = signal.getsignal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tally.run_pending()

    assert signal.getsignal(signal.SIGINT) is before


def test_a_result_that_the_server_refuses_fails_its_task(tally: Tally, looking: psycopg.Connection) -> None:
    looking.execute("alter table tally.task add constraint no_result check (result is null)")

    @task("refused")
    def refused(given: dict[str, Any]) -> object:
        return "a result"

    task_id = refused.submit({})

    tally.run_pending()

    tally.assert_failed(task_id, "result cannot be stored")


def test_a_row_that_another_session_holds_is_said_to_be(
    tally: Tally, looking: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOCKED_SECONDS", 0.05)

    @task("held")
    def held(given: dict[str, Any], context: Context) -> object:
        looking.execute("begin")
        looking.execute("select from tally.task where id = %s for update", [context.task_id])
        return None

    task_id = held.submit({})

    with pytest.raises(Locked, match=f"somebody holds the row of task {task_id}"):
        tally.run_pending()


def test_each_run_is_a_dispatcher_that_has_left(tally: Tally, looking: psycopg.Connection) -> None:
    tally.run_pending()
    tally.run_next("mails")

    left = looking.execute("select queue, slots, stopped_why from tally.dispatcher order by queue").fetchall()

    assert left == [("default", 1, "left"), ("mails", 1, "left")]


def test_a_kind_that_a_test_declares_is_forgotten_after_it(tally_server: Databases) -> None:
    @task("long lived")
    def long_lived(given: dict[str, Any]) -> object:
        return None

    with tally_server.clone() as url, tally_on(url):

        @task("short lived")
        def short_lived(given: dict[str, Any]) -> object:
            return None

        assert "short lived" in KINDS

    assert "short lived" not in KINDS
    assert KINDS.pop("long lived") is long_lived


def test_a_question_that_fails_says_what_the_row_holds(tally: Tally) -> None:
    @task("told")
    def told(given: dict[str, Any]) -> object:
        raise ValueError("of this")

    task_id = told.submit({"a": "ü"})

    with pytest.raises(AssertionError) as unrun:
        tally.assert_succeeded(task_id)
    tally.run_pending()
    with pytest.raises(AssertionError) as raised:
        tally.assert_succeeded(task_id)
    with pytest.raises(AssertionError, match="expected the reason 'another'; task 1 is FAILED"):
        tally.assert_failed(task_id, "another")
    with pytest.raises(AssertionError, match="expected a detail that contains 'that'; task 1 is FAILED"):
        tally.assert_failed(task_id, detail="that")

    assert str(unrun.value).startswith("expected SUCCEEDED; task 1 is QUEUED:\n    kind: told\n    queue: default\n")
    assert "\n    attempt 1: task raised ValueError (ValueError: of this)" in str(raised.value)
    assert '    input: {"a": "ü"}\n' in str(raised.value)
    assert '\n    error: {"detail": "ValueError: of this", "reason": "task raised ValueError"}\n' in str(raised.value)


def test_a_wrong_result_is_shown_beside_the_one_that_was_expected(tally: Tally) -> None:
    @task("sum")
    def add(given: dict[str, Any]) -> object:
        return {"sum": 3}

    task_id = add.submit({})
    tally.run_pending()

    with pytest.raises(AssertionError, match=r"expected the result \{'sum': 4\}; task 1 (?s:.*)result: \{\"sum\": 3\}"):
        tally.assert_succeeded(task_id, result={"sum": 4})
    with pytest.raises(AssertionError, match="expected the result None; task 1 is SUCCEEDED"):
        tally.assert_succeeded(task_id, result=None)


def test_a_wrong_number_of_queued_tasks_is_said_with_all_there_are(tally: Tally) -> None:
    @task("queued")
    def queued(given: dict[str, Any]) -> object:
        return None

    with pytest.raises(AssertionError, match="expected a task of kind queued QUEUED, found 0; all tasks:\n    none"):
        tally.assert_queued("queued")
    queued.submit({})

    tally.assert_queued("queued")
    tally.assert_queued("queued", 1)
    tally.assert_queued("other", 0)
    with pytest.raises(AssertionError, match="found 1; all tasks:\n    1 queued default QUEUED"):
        tally.assert_queued("queued", 2)


def test_what_is_not_there_is_said_not_to_be(tally: Tally) -> None:
    with pytest.raises(NotFound, match="there is no task 77"):
        tally.task(77)


def test_waiting_for_a_task_that_nobody_runs_ends(tally: Tally) -> None:
    @task("nobody")
    def nobody(given: dict[str, Any]) -> object:
        return None

    task_id = nobody.submit({})

    with pytest.raises(AssertionError, match=r"after 0.1 s task 1 is QUEUED"):
        tally.wait_until_ended(task_id, 0.1)

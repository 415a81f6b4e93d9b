"""A terminal write that is delayed, refused or locked out: its slot is held, and the truth is written in the end."""

from tests.support.database import Database
from tests.support.faults import FINISH, fault, raising, sleeping
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.waiting import wait_until

MARKED = "new.input ? 'marked'"


def test_a_locked_row_holds_its_slot_and_no_other_outcome(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher("--slots", "2")
    stuck = ledger.submit("sleep", seconds=0.3)
    ledger.await_state(stuck, "RUNNING")
    holder = database.connect("holder")
    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (stuck,))
        wait_until(lambda: dispatcher.saw(f"somebody holds the row of task {stuck}"), "the write was tried")
        for each in ledger.submit_many("echo", [{}] * 50):
            ledger.await_end(each)
        assert ledger.state(stuck) == "RUNNING"

    assert ledger.await_end(stuck)["result"] == "slept"
    ledger.reconcile()


def test_with_one_slot_nothing_is_claimed_until_the_outcome_is_written(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher("--slots", "1")
    first = ledger.submit("sleep", seconds=0.3)
    ledger.await_state(first, "RUNNING")
    holder = database.connect("holder")
    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (first,))
        second = ledger.submit("echo")
        wait_until(lambda: dispatcher.saw(f"somebody holds the row of task {first}"), "the write was tried")
        assert ledger.state(second) == "QUEUED"

    assert ledger.await_end(second)["state"] == "SUCCEEDED"
    assert ledger.task(first)["state"] == "SUCCEEDED"
    ledger.reconcile()


def test_a_write_slower_than_its_time_is_tried_on_while_the_others_are_written(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher("--slots", "4", env={"TALLY_STATEMENT_SECONDS": "0.5"})
    with fault(database, FINISH, sleeping(2), MARKED):
        slow = ledger.submit("echo", marked=True)
        wait_until(lambda: dispatcher.saw("outcomes.failed"), "the write ran out of time")
        for each in ledger.submit_many("echo", [{}] * 50):
            ledger.await_end(each)
        assert ledger.state(slow) == "RUNNING"

    assert ledger.await_end(slow)["state"] == "SUCCEEDED"
    ledger.reconcile()


def test_an_error_that_nobody_listed_delays_one_outcome_only(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    with fault(database, FINISH, raising("no"), MARKED):
        bad = ledger.submit("echo", marked=True)
        good = ledger.submit_many("echo", [{}] * 10)
        dispatcher = run_dispatcher("--slots", "11")
        for each in good:
            ledger.await_end(each)
        wait_until(lambda: dispatcher.saw("error=no"), "the write was refused alone")
        assert ledger.state(bad) == "RUNNING"

    assert ledger.await_end(bad)["result"] == {"marked": True}
    ledger.reconcile()


def test_a_result_that_cannot_be_stored_fails_at_the_first_try_with_the_place_named(
    ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    run_dispatcher()

    ends = {value: ledger.submit("emit", value=value) for value in ("nan", "set", "nul", "surrogate")}
    errors = {value: ledger.await_end(task)["error"] for value, task in ends.items()}

    assert {error["reason"] for error in errors.values()} == {"result cannot be stored"}
    assert errors["nan"]["detail"] == "a number that is not finite (at /a/1)"
    assert errors["set"]["detail"] == "set is not a JSON value (at /b)"
    ledger.reconcile()

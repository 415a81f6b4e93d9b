"""A claim that is refused, slow, or lost on its way."""

from pathlib import Path
from signal import SIGTERM

from tests.support.database import Database
from tests.support.faults import CLAIM, REFUSE, fault, raising, sleeping
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.tasks import effects
from tests.support.waiting import wait_until

MARKED = "new.input ? 'marked'"


def test_a_task_whose_claim_is_refused_fails_unstarted_and_the_others_run(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    left = str(tmp_path / "effects")
    with fault(database, CLAIM, raising(), MARKED):
        good = ledger.submit_many("echo", [{"effects": left} for _ in range(5)])
        bad = ledger.submit("echo", effects=left, marked=True)
        good += ledger.submit_many("echo", [{"effects": left} for _ in range(5)])
        run_dispatcher("--slots", "11")

        ledger.await_all()

    assert [ledger.state(each) for each in good] == ["SUCCEEDED"] * 10
    assert ledger.task(bad)["error"] == {"reason": "worker could not claim task", "detail": "refused by a trigger"}
    assert ledger.task(bad)["attempt"] == 0
    ledger.reconcile(effects(tmp_path / "effects"))
    assert bad not in effects(tmp_path / "effects")


def test_writing_that_a_claim_was_refused_is_tried_until_it_can_be_and_holds_one_slot(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    with fault(database, CLAIM, raising(), MARKED):
        with fault(database, REFUSE, raising("not even that"), MARKED):
            bad = ledger.submit("echo", marked=True)
            dispatcher = run_dispatcher("--slots", "2")
            wait_until(lambda: dispatcher.saw("error=not even that"), "the write was tried")
            good = ledger.submit_many("echo", [{}] * 20)
            for each in good:
                ledger.await_end(each)
            assert ledger.state(bad) == "QUEUED"

        assert ledger.await_end(bad)["error"]["reason"] == "worker could not claim task"
    ledger.reconcile()


def test_writing_that_a_claim_was_refused_stops_at_cancel(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    with fault(database, CLAIM, raising(), MARKED), fault(database, REFUSE, raising("not even that"), MARKED):
        bad = ledger.submit("echo", marked=True)
        dispatcher = run_dispatcher("--slots", "1")
        wait_until(lambda: dispatcher.saw("error=not even that"), "the write was tried")

        ledger.cancel(bad)

        good = ledger.submit("echo")
        ledger.await_end(good)
    assert ledger.task(bad)["state"] == "CANCELED"
    assert ledger.task(bad)["error"]["detail"] == "not started"
    ledger.reconcile()


def test_writing_that_a_claim_was_refused_stops_at_sigterm_and_leaves_the_task_queued(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    with fault(database, CLAIM, raising(), MARKED), fault(database, REFUSE, raising("not even that"), MARKED):
        bad = ledger.submit("echo", marked=True)
        dispatcher = run_dispatcher("--slots", "1")
        wait_until(lambda: dispatcher.saw("error=not even that"), "the write was tried")

        assert dispatcher.stop() == 0

        assert ledger.state(bad) == "QUEUED"
    ledger.reconcile()


def test_a_claim_slower_than_its_time_is_set_aside_and_the_others_run(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    with fault(database, CLAIM, sleeping(3), MARKED):
        slow = ledger.submit("echo", marked=True)
        good = ledger.submit_many("echo", [{}] * 3)
        dispatcher = run_dispatcher("--slots", "4", env={"TALLY_STATEMENT_SECONDS": "0.5"})
        for each in good:
            ledger.await_end(each)
        wait_until(lambda: dispatcher.saw(f"claim.set_aside task={slow}"), "the slow one is set aside")
        assert ledger.state(slow) == "QUEUED"

    assert ledger.await_end(slow)["state"] == "SUCCEEDED"
    ledger.reconcile()


def test_an_unknown_kind_fails_and_the_rest_of_its_batch_runs(ledger: Ledger, run_dispatcher: RunDispatcher) -> None:
    good = ledger.submit_many("echo", [{}] * 5)
    unknown = ledger.submit("nobody.knows")
    good += ledger.submit_many("echo", [{}] * 5)
    run_dispatcher("--slots", "11")

    states = ledger.await_all()

    assert states == {"SUCCEEDED": 10, "FAILED": 1}
    assert ledger.task(unknown)["error"]["reason"] == "no such kind: nobody.knows"
    ledger.reconcile()


def test_a_claim_whose_connection_dies_before_its_commit_is_made_again(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    with fault(database, CLAIM, sleeping(1)):
        task = ledger.submit("echo", effects=str(left))
        dispatcher = run_dispatcher("--slots", "2")
        sleeper = (
            "select pid from pg_stat_activity where application_name like 'tally:%%:loop' and wait_event = 'PgSleep'"
        )
        pid = wait_until(lambda: database.value(sleeper), "the claim is under way")
        database.value("select pg_terminate_backend(%s)", (pid,))
        wait_until(lambda: dispatcher.saw("claim.settled number=1 tasks=0"), "the claim is settled")

    assert ledger.await_end(task)["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0
    ledger.reconcile(effects(left))


def test_sigterm_before_a_claim_is_settled_does_not_exit_0_with_a_claimed_row(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    with fault(database, CLAIM, sleeping(1)):
        tasks = ledger.submit_many("echo", [{"effects": str(left)}] * 2)
        dispatcher = run_dispatcher("--slots", "2")
        sleeper = (
            "select pid from pg_stat_activity where application_name like 'tally:%%:loop' and wait_event = 'PgSleep'"
        )
        pid = wait_until(lambda: database.value(sleeper), "the claim is under way")
        dispatcher.send(SIGTERM)
        database.value("select pg_terminate_backend(%s)", (pid,))
        assert dispatcher.wait() == 0
    assert "RUNNING" not in {ledger.state(task) for task in tasks}
    ledger.reconcile(effects(left))

"""A dispatcher killed, frozen or condemned: its tasks end once, with a reason, and are not run again."""

from pathlib import Path
from signal import SIGCONT, SIGSTOP

from tests.support.database import Database
from tests.support.faults import FINISH, fault, sleeping
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.tasks import effects
from tests.support.waiting import wait_until


def test_what_a_killed_dispatcher_left_running_fails_and_is_not_run_again(
    ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    killed = run_dispatcher("--slots", "5")
    tasks = ledger.submit_many("sleep", [{"seconds": 60, "effects": str(left)}] * 5)
    wait_until(lambda: len(effects(left)) == 5, "every body has started")
    killed.kill()

    run_dispatcher("--slots", "5")

    for each in tasks:
        error = ledger.await_end(each)["error"]
        assert error["reason"] == "process exited before worker completion"
        assert f"process {killed.pid} on" in error["detail"]
    assert ledger.await_end(ledger.submit("echo"))["state"] == "SUCCEEDED"
    assert len(effects(left)) == 5
    ledger.reconcile(effects(left))


def test_a_running_task_whose_cancel_was_accepted_ends_canceled_when_its_dispatcher_was_killed(
    ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    killed = run_dispatcher()
    task = ledger.submit("sleep", seconds=60, stubborn=True)
    ledger.await_state(task, "RUNNING")
    ledger.cancel(task)
    killed.kill()

    run_dispatcher()

    end = ledger.await_end(task)
    assert end["state"] == "CANCELED"
    assert end["error"]["reason"] == "canceled"
    assert end["error"]["detail"].startswith("process exited before worker completion; held by dispatcher")
    ledger.reconcile()


def test_a_restart_does_not_wait_for_the_statement_that_a_killed_dispatcher_left_behind(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    with fault(database, FINISH, sleeping(60)):
        killed = run_dispatcher(env={"TALLY_STATEMENT_SECONDS": "60", "TALLY_STALL_SECONDS": "200"})
        task = ledger.submit("echo")
        asleep = "select pid from pg_stat_activity where application_name like 'tally:%%' and wait_event = 'PgSleep'"
        wait_until(lambda: database.value(asleep), "the terminal write is under way")
        killed.kill()
    assert ledger.state(task) == "RUNNING"

    run_dispatcher()

    assert ledger.await_end(task)["error"]["reason"] == "process exited before worker completion"
    ledger.reconcile()


def test_a_frozen_dispatcher_that_lost_its_session_is_lost_and_does_no_harm_when_it_wakes(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    frozen = run_dispatcher()
    task = ledger.submit("gate", gate=str(gate))
    ledger.await_state(task, "RUNNING")
    run_dispatcher()
    frozen.send(SIGSTOP)
    database.value(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name = 'tally:' || (select claimed_by from tally.task) || ':session'"
    )

    end = ledger.await_end(task, seconds=15)
    gate.touch()
    frozen.send(SIGCONT)

    assert end["error"]["reason"] == "dispatcher lost before worker completion"
    assert frozen.wait() == 1
    assert frozen.saw("dispatcher.condemned")
    assert ledger.task(task) == end
    ledger.reconcile()

"""A dispatcher killed, frozen or condemned: its tasks end once, with a reason, and are not run again."""

from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from tests.support.database import Database
from tests.support.faults import fault, sleeping
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.service import Service
from tests.support.tasks import effects
from tests.support.waiting import wait_until

SUCCEED = "new.state = 'SUCCEEDED'"


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


def test_a_restart_does_not_wait_for_the_statement_that_a_killed_dispatcher_left_behind(service: Service) -> None:
    patient: dict[str, str | None] = {"TALLY_STATEMENT_SECONDS": "60", "TALLY_STALL_SECONDS": "200"}
    # A backend would notice by itself that its client is gone, a second later or so: this one does not.
    asleep = f"perform set_config('client_connection_check_interval', '0', true); {sleeping(60)}"
    with fault(service.database, SUCCEED, asleep):
        service.start(env=patient)
        entry = service.submit_text("Go one")
        assert entry.task is not None
        left_behind = (
            "select pid from pg_stat_activity where application_name like 'tally:%%' and wait_event = 'PgSleep'"
        )
        pid = wait_until(lambda: service.database.value(left_behind), "the terminal write is under way")
        assert service.statistics(entry.task) == ("RUNNING", 0, 0, 0, False)
        service.dispatcher.kill()
        assert service.dispatcher.wait() == -SIGKILL
        assert service.statistics(entry.task) == ("RUNNING", 0, 0, 0, False)
        assert service.database.value(left_behind) == pid, "its backend is still inside the statement"

        # A minute is what the statement would have taken: everything below is over long before.
        service.dispatcher = service.run_dispatcher(env=patient)

        end = service.api.follow(entry.task)
        assert (end["state"], end["error"]["reason"]) == ("FAILED", "process exited before worker completion")
        assert service.statistics(entry.task) == ("FAILED", 0, 0, 0, False)
        assert end["attempt"] == 1
        assert service.database.value(left_behind) is None
    assert service.api.follow(service.accepted())["state"] == "SUCCEEDED"
    assert service.api.task(entry.task) == end
    service.reconcile()


def test_frozen_dispatchers_that_lost_their_sessions_are_lost_and_do_no_harm_when_they_wake(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    gate, left = tmp_path / "gate", tmp_path / "effects"
    draining = run_dispatcher("--slots", "1", env={"TALLY_DRAIN_SECONDS": "7"})
    never_ends = ledger.submit("sleep", seconds=600, stubborn=True, effects=str(left))
    ledger.await_state(never_ends, "RUNNING")
    working = run_dispatcher()
    ends = ledger.submit("gate", gate=str(gate), effects=str(left))
    wait_until(lambda: len(effects(left)) == 2, "both bodies have started")
    judge = run_dispatcher()
    draining.send(SIGTERM)
    draining.wait_for("dispatcher.draining")
    for frozen in (draining, working):
        frozen.send(SIGSTOP)
    database.value(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name in (select 'tally:' || claimed_by || ':session' from tally.task)"
    )

    lost = [ledger.await_end(task) for task in (never_ends, ends)]
    gate.touch()
    for frozen in (draining, working):
        frozen.send(SIGCONT)

    assert {end["error"]["reason"] for end in lost} == {"dispatcher lost before worker completion"}
    # One whose body ends is gone then, one whose body does not by the deadline of its drain.
    assert (working.wait(), draining.wait(9)) == (1, 1)
    assert working.saw("dispatcher.condemned")
    assert [ledger.task(task) for task in (never_ends, ends)] == lost
    assert judge.stop() == 0
    ledger.reconcile(effects(left))

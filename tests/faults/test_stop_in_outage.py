"""Stopping while the database is down, frozen, or refuses what is to be written: gone by the deadline, and honest."""

import resource
from collections.abc import Callable, Iterator
from signal import SIGINT, SIGTERM
from time import monotonic

import pytest

from tests.support.database import Database
from tests.support.faults import FINISH, fault, raising
from tests.support.ledger import Ledger
from tests.support.program import Program, RunDispatcher
from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.waiting import wait_until

EXITED = "process exited before worker completion"
SLACK = 1.5
"""For a busy machine: from the deadline to the end of the process as its parent sees it."""

Break = Callable[[], None]


@pytest.fixture(params=["frozen", "stopped"])
def break_down(request: pytest.FixtureRequest, server: TestServer) -> Iterator[Break]:
    """Take the database away, in one of the ways it goes."""
    yield server.freeze if request.param == "frozen" else lambda: server.stop("immediate")
    server.bring_up()


stopped_and_at_length_frozen = pytest.mark.parametrize(
    "break_down", ["stopped", pytest.param("frozen", marks=pytest.mark.long)], indirect=True
)


def drain_of(seconds: float, reserve: float) -> dict[str, str | None]:
    return {"TALLY_DRAIN_SECONDS": str(seconds), "TALLY_DRAIN_RESERVE_SECONDS": str(reserve)}


def test_both_programs_are_gone_by_the_deadline_and_the_next_start_settles_the_rows(
    service: Service, server: TestServer, break_down: Break
) -> None:
    service.start(env=drain_of(2, 1))
    task = service.accepted("gate")
    wait_until(lambda: service.started == [task], "the body has started")
    break_down()
    assert service.submit().status in {503, 504}
    began = monotonic()

    service.web.send(SIGTERM)
    service.dispatcher.send(SIGTERM)

    # The web had nothing left to answer; the dispatcher lost a task.
    assert (service.web.wait(), service.dispatcher.wait()) == (0, 1)
    assert monotonic() - began < 2 + SLACK
    server.bring_up()
    assert service.state(task) == "RUNNING"
    service.start()
    assert service.api.follow(task)["error"]["reason"] == EXITED
    service.await_all()
    service.reconcile()


def test_three_signals_do_not_wait_for_the_database(
    server: TestServer, ledger: Ledger, run_dispatcher: RunDispatcher, break_down: Break
) -> None:
    dispatcher = run_dispatcher(env=drain_of(600, 1))
    task = ledger.submit("sleep", seconds=60)
    ledger.await_state(task, "RUNNING")
    break_down()
    began = monotonic()

    for number in (SIGTERM, SIGINT, SIGTERM):
        dispatcher.send(number)

    assert dispatcher.wait() == 1
    # The time of a call that they may come into, and then the reserve.
    assert monotonic() - began < 2 + 1 + SLACK
    server.bring_up()
    assert ledger.state(task) == "RUNNING"
    run_dispatcher()
    assert ledger.await_end(task)["error"]["reason"] == EXITED
    ledger.reconcile()


@stopped_and_at_length_frozen
def test_outcomes_in_back_off_do_not_hold_the_exit_up_past_the_deadline(
    server: TestServer, service: Service, break_down: Break
) -> None:
    service.start(env={**drain_of(2, 1), "TALLY_STATEMENT_SECONDS": "0.3"})
    tasks = [service.accepted("gate") for _ in range(4)]
    wait_until(lambda: len(service.started) == 4, "every body has started")
    break_down()
    service.gate.touch()
    service.dispatcher.wait_for("write.failed")
    began = monotonic()

    assert service.dispatcher.stop() == 1

    assert monotonic() - began < 2 + SLACK
    server.bring_up()
    assert [service.state(task) for task in tasks] == ["RUNNING"] * 4
    service.dispatcher = service.run_dispatcher()
    assert {service.api.follow(task)["error"]["reason"] for task in tasks} == {EXITED}
    service.reconcile()


def test_an_outcome_that_a_trigger_refuses_does_not_hold_the_exit_up_either(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher(env=drain_of(1, 0.5))
    with fault(database, FINISH, raising("no")):
        task = ledger.submit("echo")
        dispatcher.wait_for("error=no")

        assert dispatcher.stop() == 1

    assert ledger.state(task) == "RUNNING"
    run_dispatcher()
    assert ledger.await_end(task)["error"]["reason"] == EXITED
    ledger.reconcile()


@stopped_and_at_length_frozen
def test_a_database_that_is_back_before_the_deadline_has_cost_nothing(
    server: TestServer, service: Service, break_down: Break
) -> None:
    service.start(env={"TALLY_DRAIN_SECONDS": "60", "TALLY_STATEMENT_SECONDS": "0.3"})
    task = service.accepted("gate")
    wait_until(lambda: service.started == [task], "the body has started")
    break_down()
    service.gate.touch()
    service.dispatcher.wait_for("write.failed")
    service.dispatcher.send(SIGTERM)
    service.dispatcher.wait_for("dispatcher.draining")

    server.bring_up()

    assert service.dispatcher.wait() == 0
    assert service.state(task) == "SUCCEEDED"
    assert service.database.value("select stopped_why from tally.dispatcher") == "left"
    service.reconcile()


def test_a_stop_that_comes_in_the_midst_of_an_unanswered_call_ends_by_the_deadline_too(
    server: TestServer, run_dispatcher: RunDispatcher, mended: None
) -> None:
    dispatcher = run_dispatcher(env=drain_of(1, 0.5))
    server.freeze()
    began = monotonic()

    dispatcher.send(SIGTERM)

    assert dispatcher.wait() == 1
    assert monotonic() - began < 1 + SLACK, "it waited for calls of 2.5 s"


def test_one_that_can_never_connect_again_does_not_end_with_0(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher(env=drain_of(1.5, 0.5))
    task = ledger.submit("sleep", seconds=60)
    ledger.await_state(task, "RUNNING")
    forbid_files(dispatcher)
    database.value(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'tally:%%'"
    )

    assert dispatcher.stop() == 1

    assert ledger.state(task) == "RUNNING"
    run_dispatcher()
    assert ledger.await_end(task)["error"]["reason"] == EXITED
    ledger.reconcile()


def forbid_files(program: Program) -> None:
    """Let the program open no file or socket any more."""
    resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (3, 3))

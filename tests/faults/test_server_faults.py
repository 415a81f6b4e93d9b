"""PostgreSQL restarted, frozen or cutting sessions off, seen from the dispatcher."""

from pathlib import Path

import pytest

from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.tasks import effects
from tests.support.waiting import wait_until


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_task_that_runs_through_a_restart_of_the_database_succeeds(
    server: TestServer, ledger: Ledger, run_dispatcher: RunDispatcher, tmp_path: Path, mode: str
) -> None:
    gate, left = tmp_path / "gate", tmp_path / "effects"
    dispatcher = run_dispatcher()
    task = ledger.submit("gate", gate=str(gate), effects=str(left))
    wait_until(lambda: effects(left), "the body has started")

    server.stop("immediate" if mode == "immediate" else "fast")
    gate.touch()
    wait_until(lambda: dispatcher.saw("write.failed"), "the outcome could not be written")
    server.start()

    assert ledger.await_end(task)["state"] == "SUCCEEDED"
    assert ledger.await_end(ledger.submit("echo"))["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0
    ledger.reconcile(effects(left))


def test_a_frozen_database_is_outlived(server: TestServer, ledger: Ledger, run_dispatcher: RunDispatcher) -> None:
    dispatcher = run_dispatcher(env={"TALLY_STATEMENT_SECONDS": "0.3"})
    task = ledger.submit("sleep", seconds=0.3)
    ledger.await_state(task, "RUNNING")

    server.freeze()
    wait_until(lambda: dispatcher.saw("did not answer in time"), "a call ended by its deadline")
    server.thaw()

    assert ledger.await_end(task)["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0
    ledger.reconcile()


def test_a_session_cut_off_again_and_again_comes_back_and_looks(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    # The sweep is long, so that only the session's own look after a reconnect can find the task.
    dispatcher = run_dispatcher(env={"TALLY_SWEEP_SECONDS": "600"})
    session = "select pid from pg_stat_activity where application_name like 'tally:%%:session'"
    for _ in range(3):
        pid = wait_until(lambda: database.value(session), "the session is there")
        database.value("select pg_terminate_backend(%s, 5000)", (pid,))
        task = ledger.submit("echo")
        assert ledger.await_end(task)["state"] == "SUCCEEDED"

    assert dispatcher.stop() == 0
    assert database.value("select stopped_why from tally.dispatcher") == "left"
    ledger.reconcile()


def test_a_cancel_is_seen_without_any_notification(
    database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    run_dispatcher()
    task = ledger.submit("sleep", seconds=60)
    ledger.await_state(task, "RUNNING")

    database.execute("update tally.task set cancel_requested_at = now() where id = %s", (task,))

    assert ledger.await_end(task, seconds=5)["error"]["detail"] == "stopped"
    ledger.reconcile()


def test_a_read_only_database_is_an_outage(
    server: TestServer, database: Database, ledger: Ledger, run_dispatcher: RunDispatcher
) -> None:
    dispatcher = run_dispatcher()
    running = ledger.submit("sleep", seconds=0.5)
    queued = ledger.submit("echo")
    ledger.await_state(running, "RUNNING")
    ledger.await_end(queued)
    server.value("alter system set default_transaction_read_only = on")
    server.value("select pg_reload_conf()")
    try:
        wait_until(lambda: dispatcher.saw("read-only transaction"), "the outcome could not be written")
        assert ledger.state(running) == "RUNNING"
    finally:
        server.value("alter system reset default_transaction_read_only")
        server.value("select pg_reload_conf()")

    assert ledger.await_end(running)["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0
    ledger.reconcile()


def test_a_connection_that_dies_silently_delays_work_no_longer_than_a_call_may_take(
    database: Database, server: TestServer, ledger: Ledger, run_dispatcher: RunDispatcher, proxy: MakeProxy
) -> None:
    forwarder = proxy("127.0.0.1", server.port)
    dispatcher = run_dispatcher(env={"DATABASE_URL": forwarder.url_for(database.url), "TALLY_STATEMENT_SECONDS": "0.5"})
    ledger.await_end(ledger.submit("echo"))

    forwarder.freeze()
    task = ledger.submit("echo")
    wait_until(lambda: dispatcher.saw("did not answer in time"), "a call ended by its deadline", seconds=5)
    forwarder.thaw()

    assert ledger.await_end(task)["state"] == "SUCCEEDED"
    assert dispatcher.stop() == 0
    ledger.reconcile()

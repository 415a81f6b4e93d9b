"""A reply that is lost on its way: what was committed is found out, never done again."""

from pathlib import Path

from tests.support.database import Database
from tests.support.faults import CLAIM, fault, sleeping
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.tasks import effects
from tests.support.waiting import wait_until

ASLEEP = "select pid from pg_stat_activity where application_name like 'tally:%%:loop' and wait_event = 'PgSleep'"


def test_a_claim_that_was_committed_but_never_answered_is_settled_and_started_once(
    database: Database,
    server: TestServer,
    ledger: Ledger,
    run_dispatcher: RunDispatcher,
    proxy: MakeProxy,
    tmp_path: Path,
) -> None:
    left = tmp_path / "effects"
    forwarder = proxy("127.0.0.1", server.port)
    dispatcher = run_dispatcher("--slots", "3", env={"DATABASE_URL": forwarder.url_for(database.url)})
    with fault(database, CLAIM, sleeping(0.3)):
        tasks = ledger.submit_many("echo", [{"effects": str(left)}] * 3)
        wait_until(lambda: database.value(ASLEEP), "the claim is under way")
        forwarder.mute()
        for task in tasks:
            ledger.await_state(task, "RUNNING")
    assert effects(left) == []

    forwarder.cut()
    forwarder.accept()
    forwarder.thaw()

    for task in tasks:
        assert ledger.await_end(task)["state"] == "SUCCEEDED"
    assert dispatcher.saw("tasks=3")
    assert dispatcher.stop() == 0
    ledger.reconcile(effects(left))
    assert sorted(effects(left)) == tasks


def test_an_outcome_that_was_committed_but_never_acknowledged_is_found_and_not_written_again(
    database: Database,
    server: TestServer,
    ledger: Ledger,
    run_dispatcher: RunDispatcher,
    proxy: MakeProxy,
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    forwarder = proxy("127.0.0.1", server.port)
    dispatcher = run_dispatcher(env={"DATABASE_URL": forwarder.url_for(database.url), "TALLY_LOG_LEVEL": "debug"})
    ledger.await_end(ledger.submit("echo"))
    task = ledger.submit("gate", gate=str(gate))
    ledger.await_state(task, "RUNNING")
    forwarder.mute()
    gate.touch()
    end = ledger.await_end(task)

    forwarder.cut()
    forwarder.accept()
    forwarder.thaw()

    wait_until(lambda: dispatcher.saw("verdict=yours already"), "the write was found done")
    assert ledger.task(task) == end
    assert dispatcher.stop() == 0
    ledger.reconcile()

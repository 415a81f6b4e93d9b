"""An earlier commit's programs, on its own schema, are upgraded to the current ones; both run side by side."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import monotonic

import pytest

from tests.support.database import Database, holding
from tests.support.program import Program, RunDispatcher, RunProgram, programs
from tests.support.service import Service
from tests.support.waiting import wait_until
from tests.upgrade.traffic import PROMISED_SECONDS, traffic

pytestmark = pytest.mark.scale

PAST_DISPATCHER = """
insert into tally.dispatcher (id, host, boot_id, network_namespace, pid, slots, stopped_at, stopped_why)
values (gen_random_uuid(), 'past', '', '', 1, 1, now(), 'left')
"""
CLAIMED_BY = """
select count(*) from tally.task join tally.dispatcher on dispatcher.id = task.claimed_by where dispatcher.pid = %s
"""


@pytest.fixture
def database(earlier_database: Database) -> Database:
    """Here every program runs on the schema that the earlier code has made."""
    return earlier_database


@pytest.fixture
def run_earlier(database: Database, earlier: Path) -> Iterator[RunProgram]:
    with programs(database.url, earlier) as run:
        yield run


@pytest.fixture
def run_earlier_dispatcher(run_earlier: RunProgram) -> RunDispatcher:
    return partial(run_earlier, "dispatcher", "--tasks", "tests.support.tasks")


@pytest.fixture
def service(
    database: Database, run_earlier: RunProgram, run_earlier_dispatcher: RunDispatcher, tmp_path: Path
) -> Service:
    """The earlier programs, started."""
    service = Service(database, run_earlier, run_earlier_dispatcher, tmp_path)
    service.start()
    return service


def await_claim(database: Database, dispatcher: Program) -> None:
    """Wait until this dispatcher has claimed another task."""
    before = database.value(CLAIMED_BY, (dispatcher.pid,))
    wait_until(lambda: database.value(CLAIMED_BY, (dispatcher.pid,)) > before, f"{dispatcher} claims")


def test_an_upgrade_under_load_loses_nothing_and_stops_nothing(
    service: Service, database: Database, run_program: RunProgram
) -> None:
    database.execute(PAST_DISPATCHER)
    first = service.accepted()
    earlier_dispatcher, earlier_web = service.dispatcher, service.web
    with traffic(service) as flowing:
        began = monotonic()
        with holding(
            database,
            "update tally.dispatcher set trouble = 'held' where host = 'past'",
            f"update tally.task set priority = priority where id = {first}",
        ) as holder:
            migration = run_program("sql", "migrate", ready=False)
            migration.wait_for(f"migration.waiting pid={holder} name='holder'")
            migration.wait_for("migration.paused tries=4")
        assert migration.wait() == 0
        flowing.flows()
        gaps = (flowing.longest_gap(began, monotonic()), flowing.longest_claim_gap())
        print("during the migration, longest without a 202: {:.2f} s, without a claim: {:.2f} s".format(*gaps))

        dispatcher = run_program("dispatcher", "--tasks", "tests.support.tasks,tests.upgrade.kinds")
        for each in (earlier_dispatcher, dispatcher):
            await_claim(database, each)
        assert earlier_dispatcher.stop() == 0
        of_a_new_kind = service.accepted("of the day")

        service.web = run_program("falcon_app")
        flowing.flows()
        assert earlier_web.stop() == 0
        flowing.flows()
        print(f"during the upgrade, longest without a 202: {flowing.longest_gap(began, monotonic()):.2f} s")

    service.await_all()
    service.reconcile()
    assert {entry.status for entry in service.book} == {202}
    assert database.rows("select state from tally.task where state <> 'SUCCEEDED'") == []
    assert service.state(of_a_new_kind) == "SUCCEEDED"
    assert dispatcher.stop() == 0
    assert service.web.stop() == 0
    assert max(gaps) < PROMISED_SECONDS


@pytest.mark.parametrize("killed", ["earlier", "current"])
def test_both_versions_judge_each_other_rightly(
    service: Service, database: Database, run_program: RunProgram, run_dispatcher: RunDispatcher, killed: str
) -> None:
    assert run_program("sql", "migrate", ready=False).wait() == 0
    held = {"earlier": service.accepted("gate")}
    service.await_state(held["earlier"], "RUNNING")
    both = {"earlier": service.dispatcher}
    database.execute("update tally.queue set paused_at = now()")
    held["current"] = service.accepted("gate")
    # The other one is busy with nothing, and yet must not get this task.
    service.dispatcher.send(signal.SIGSTOP)
    both["current"] = run_dispatcher()
    database.execute("update tally.queue set paused_at = null")
    service.await_state(held["current"], "RUNNING")
    service.dispatcher.send(signal.SIGCONT)
    (other,) = set(both) - {killed}

    both[killed].kill()

    service.await_state(held[killed], "FAILED")
    assert service.row(held[killed])[2]["reason"] == "process exited before worker completion"
    assert service.state(held[other]) == "RUNNING"
    service.gate.touch()
    service.await_state(held[other], "SUCCEEDED")
    assert both[other].stop() == 0
    service.reconcile()


def test_the_earlier_migrate_refuses_the_later_schema_and_changes_nothing(
    database: Database, run_program: RunProgram, run_earlier: RunProgram
) -> None:
    assert run_program("sql", "migrate", ready=False).wait() == 0
    functions = "select oid, xmin, prosrc from pg_proc where pronamespace = 'tally'::regnamespace order by oid"
    before = database.rows(functions)

    refused = run_earlier("sql", "migrate", ready=False)

    assert refused.wait() == 1
    assert refused.saw("the schema is at")
    assert database.rows(functions) == before
    for asked in (["status"], ["queue", "default", "--max-open", "7"]):
        assert run_earlier("sql", *asked, ready=False).wait() == 0
    assert database.value("select max_open from tally.queue") == 7


def test_programs_before_0004_go_on_working_though_they_know_of_no_later_schema(
    service: Service, database: Database, run_program: RunProgram, run_earlier: RunProgram
) -> None:
    assert run_program("sql", "migrate", ready=False).wait() == 0

    service.await_state(service.accepted(), "SUCCEEDED")
    assert service.probe("/healthz") == 200
    # What docs/upgrade.md says of them.
    assert service.probe("/readyz") == 503
    assert run_earlier("falcon_app", ready=False).wait() == 1
    assert service.dispatcher.stop() == 0
    assert service.web.stop() == 0

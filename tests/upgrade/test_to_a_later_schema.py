"""The current programs as those of before: a later migration serves them still, or no more."""

from pathlib import Path
from time import monotonic

import pytest

from sql.migrate import latest_version
from tests.support.database import Database, holding
from tests.support.http import Client
from tests.support.program import RunDispatcher, RunProgram
from tests.support.service import Service
from tests.upgrade.conftest import RunLater
from tests.upgrade.traffic import PROMISED_SECONDS, traffic

pytestmark = pytest.mark.scale

ADDED = f"""
alter table tally.task add column remark text;
update tally.migration set serves = {latest_version()} where version = 9999;
"""
REFUSED = f"the schema is at 9999, this program knows {latest_version()}; it serves programs that know 9999 or later"


@pytest.fixture
def service(database: Database, run_program: RunProgram, run_dispatcher: RunDispatcher, tmp_path: Path) -> Service:
    """Both programs, started."""
    service = Service(database, run_program, run_dispatcher, tmp_path)
    service.start()
    return service


def test_a_change_of_the_busiest_table_stops_traffic_for_less_than_a_second(
    service: Service, database: Database, run_later: RunLater
) -> None:
    first = service.accepted()
    with traffic(service) as flowing:
        began = monotonic()
        with holding(database, f"update tally.task set priority = priority where id = {first}") as holder:
            migration = run_later(ADDED)("sql", "migrate", ready=False)
            migration.wait_for(f"migration.waiting pid={holder} name='holder'")
            migration.wait_for("migration.paused tries=4")
        assert migration.wait() == 0
        flowing.flows()
        gaps = (flowing.longest_gap(began, monotonic()), flowing.longest_claim_gap())
        print("during the migration, longest without a 202: {:.2f} s, without a claim: {:.2f} s".format(*gaps))

    service.await_all()
    service.reconcile()
    assert {entry.status for entry in service.book} == {202}
    assert database.value("select count(*) from tally.task where state <> 'SUCCEEDED'") == 0
    assert max(gaps) < PROMISED_SECONDS


def test_a_later_schema_that_serves_them_is_as_good_to_programs_as_their_own(
    service: Service, database: Database, run_program: RunProgram, run_dispatcher: RunDispatcher, run_later: RunLater
) -> None:
    assert run_later(ADDED)("sql", "migrate", ready=False).wait() == 0
    functions = "select oid, xmin from pg_proc where pronamespace = 'tally'::regnamespace order by oid"
    of_the_later = database.rows(functions)

    service.ready()
    service.await_state(service.accepted(), "SUCCEEDED")
    assert service.web.stop() == 0
    assert service.dispatcher.stop() == 0
    service.start()
    service.ready()
    service.await_state(service.accepted(), "SUCCEEDED")
    assert service.web.saw(f"schema.newer version=9999 known={latest_version()}")
    migration = run_program("sql", "migrate", ready=False)
    assert migration.wait() == 0
    assert migration.saw(f"schema.newer version=9999 known={latest_version()}")
    assert database.rows(functions) == of_the_later
    assert run_program("sql", "status", ready=False).wait() == 0
    service.reconcile()


def test_a_later_schema_that_serves_them_no_more_refuses_programs(
    service: Service, run_program: RunProgram, run_later: RunLater
) -> None:
    assert run_later("alter table tally.queue add column remark text")("sql", "migrate", ready=False).wait() == 0

    answer = Client(service.web.admin).get("/readyz")
    assert (answer.status, answer.json()["detail"]) == (503, REFUSED)
    for module, *arguments in (["falcon_app"], ["dispatcher"], ["sql", "migrate"]):
        refused = run_program(module, *arguments, ready=False)
        refused.wait_for(REFUSED)
        assert refused.wait() == 1

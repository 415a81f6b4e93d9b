"""A claim whose reply is lost: settled, then claimed later or started once; never twice, never stuck."""

from signal import SIGTERM

import pytest

from tests.support.database import Database
from tests.support.faults import CLAIM, fault, sleeping
from tests.support.proxy import MakeProxy, Proxy
from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.waiting import wait_until

ASLEEP = "select pid from pg_stat_activity where application_name like 'tally:%:loop' and wait_event = 'PgSleep'"
SHORT = {"TALLY_STATEMENT_SECONDS": "1"}


def claim_under_way(database: Database) -> int:
    return int(wait_until(lambda: database.value(ASLEEP), "the claim is under way"))


def start_behind(service: Service, way: Proxy, slots: str, **settings: str) -> None:
    """Start both programs, the dispatcher behind a proxy."""
    service.web = service.run_program("falcon_app")
    url = way.url_for(service.database.url)
    service.dispatcher = service.run_dispatcher("--slots", slots, env={**SHORT, "DATABASE_URL": url, **settings})


def committed_and_not_answered(service: Service, way: Proxy, count: int) -> list[int]:
    """Let a claim of so many tasks be committed, and keep its reply back; return the tasks."""
    with fault(service.database, CLAIM, sleeping(0.3 / count)):
        service.database.execute("update tally.queue set paused_at = now()")
        tasks = [service.accepted() for _ in range(count)]
        service.database.execute("update tally.queue set paused_at = null")
        claim_under_way(service.database)
        way.mute()
        for task in tasks:
            service.await_state(task, "RUNNING")
    assert service.started == []
    return tasks


def ends_as_it_should(service: Service, tasks: list[int]) -> None:
    """Each task has succeeded, started once, and a dispatcher that stops now exits 0."""
    for task in tasks:
        service.await_state(task, "SUCCEEDED")
    assert service.dispatcher.stop() == 0
    assert sorted(service.started) == tasks
    service.reconcile()


def test_a_claim_whose_connection_dies_before_its_commit_is_made_again(service: Service) -> None:
    service.start("--slots", "2")
    with fault(service.database, CLAIM, sleeping(1)):
        task = service.accepted()
        pid = claim_under_way(service.database)
        service.database.value("select pg_terminate_backend(%s)", (pid,))
        service.dispatcher.wait_for("claim.settled")
        assert service.dispatcher.saw("tasks=0")

    ends_as_it_should(service, [task])


@pytest.mark.parametrize("way_of_dying", ["cut", "freeze"])
def test_a_claim_whose_connection_dies_after_its_commit_is_settled_and_started_once(
    service: Service, server: TestServer, proxy: MakeProxy, way_of_dying: str
) -> None:
    way = proxy("127.0.0.1", server.port)
    start_behind(service, way, "3")
    tasks = committed_and_not_answered(service, way, 3)
    if way_of_dying == "cut":
        way.cut()
    else:
        way.freeze()
        service.dispatcher.wait_for("claim.unsettled")
        assert service.started == []
    way.thaw()

    service.dispatcher.wait_for("tasks=3")
    ends_as_it_should(service, tasks)


@pytest.mark.parametrize("seconds", [0.2, 5], ids=["just before its commit", "well before"])
def test_a_server_frozen_in_a_claim_and_thawed_later_has_it_settled_and_started_once(
    service: Service, server: TestServer, seconds: float
) -> None:
    service.start("--slots", "3", env={**SHORT})
    with fault(service.database, CLAIM, sleeping(seconds)):
        task = service.accepted()
        claim_under_way(service.database)
        server.freeze()
        service.dispatcher.wait_for("claim.unsettled", 10)

        server.thaw()

        service.dispatcher.wait_for("claim.settled", 10)
    ends_as_it_should(service, [task])


@pytest.mark.parametrize("moment", ["before its commit", "after its commit"])
def test_sigterm_while_a_claim_is_unsettled_waits_for_what_it_took(
    service: Service, server: TestServer, proxy: MakeProxy, moment: str
) -> None:
    way = proxy("127.0.0.1", server.port)
    start_behind(service, way, "2")
    if moment == "after its commit":
        tasks = committed_and_not_answered(service, way, 2)
        way.refuse()
        way.cut()
    else:
        with fault(service.database, CLAIM, sleeping(0.6)):
            tasks = [service.accepted()]
            claim_under_way(service.database)
            way.refuse()
            way.cut()
    service.dispatcher.wait_for("claim.unsettled")

    service.dispatcher.send(SIGTERM)
    service.dispatcher.wait_for("dispatcher.draining")
    assert service.dispatcher.running
    way.thaw()
    way.accept()

    assert service.dispatcher.wait() == 0
    assert {service.state(task) for task in tasks} <= {"QUEUED", "SUCCEEDED"}
    if moment == "after its commit":
        assert [service.state(task) for task in tasks] == ["SUCCEEDED"] * 2
    left = [task for task in tasks if service.state(task) == "QUEUED"]
    assert sorted(service.started + left) == tasks
    service.reconcile(open_tasks=len(left))


def test_a_claim_that_cannot_be_settled_before_the_drain_deadline_is_no_exit_0_and_never_begins(
    service: Service, server: TestServer, proxy: MakeProxy
) -> None:
    way = proxy("127.0.0.1", server.port)
    start_behind(service, way, "2", TALLY_DRAIN_SECONDS="2", TALLY_DRAIN_RESERVE_SECONDS="0.5")
    (task,) = committed_and_not_answered(service, way, 1)
    way.refuse()
    way.cut()
    service.dispatcher.wait_for("claim.unsettled")

    assert service.dispatcher.stop() == 1

    assert service.state(task) == "RUNNING"
    service.run_dispatcher()
    service.await_state(task, "FAILED")
    assert service.row(task)[2]["reason"] == "process exited before worker completion"
    assert service.started == []
    service.reconcile()

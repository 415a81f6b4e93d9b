"""A COMMIT waits for the standby that must confirm it: broken off, or for as long as there is none."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from tests.cluster.cluster import Cluster, query
from tests.cluster.fleet import COMMITS_WAIT, GRACE_SECONDS, SLACK, Fleet
from tests.cluster.member import Member
from tests.support.service import DEADLINE, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

BREAK_OFF = """
    select {how}(pid) from pg_stat_activity
    where wait_event = 'SyncRep' and application_name = 'tally-web admission'
"""
OUTCOMES_WAIT = """
    select count(*) from pg_stat_activity
    where wait_event = 'SyncRep' and application_name like 'tally:%:outcomes'
"""


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def break_off(primary: Member, how: str) -> None:
    """Break off the wait of a submit's COMMIT, once it waits."""
    wait_until(lambda: query(primary, BREAK_OFF.format(how=how)), "a COMMIT waits for the standby")


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_wait_that_was_broken_off_is_settled_once_the_standby_confirms(
    cluster: Cluster, fleet: Fleet, aside: ThreadPoolExecutor, how: str
) -> None:
    primary = cluster.primary
    primary.freeze_sending()
    answer = aside.submit(fleet.service.submit, key="k")

    break_off(primary, how)
    wait_until(lambda: fleet.webs[0].saw("admission.outcome_unknown"), "it is unknown")
    wait_until(lambda: query(primary, COMMITS_WAIT) == [(1,)], "its settlement waits as well")
    assert not answer.done()
    primary.thaw()

    assert answer.result(20).status == 202
    fleet.reconcile()
    fleet.stop()


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_wait_that_was_broken_off_is_never_a_202_that_a_failover_takes_back(
    cluster: Cluster, fleet: Fleet, aside: ThreadPoolExecutor, how: str
) -> None:
    primary = cluster.primary
    name = fleet.service.database.name
    primary.freeze_sending()
    answer = aside.submit(fleet.service.submit, key="k", marker="m")

    break_off(primary, how)
    # It is there for whoever looks, and only here: asked for by its key it is not answered with either.
    wait_until(lambda: query(primary, "select count(*) from tally.task", name) == [(1,)], "the row is there")
    first = answer.result(20)
    again = fleet.service.submit(web=fleet.webs[1], key="k", marker="m")
    primary.kill_server()
    cluster.await_other_primary(primary)

    assert (first.status, first.code) == (504, "outcome-unknown")
    assert again.status in {503, 504}
    wait_until(lambda: fleet.service.submit(key="k", marker="m").status == 202, "it is accepted", 30)
    fleet.reconcile()
    cluster.await_whole()
    fleet.stop()


def test_without_a_standby_everything_is_answered_in_time_and_nobody_is_condemned(
    cluster: Cluster, service: Service, aside: ThreadPoolExecutor
) -> None:
    fleet = Fleet(service)
    fleet.start({"TALLY_LOG_LEVEL": "debug"})
    done = service.accepted()
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")
    primary = cluster.primary

    primary.freeze_sending()
    began = monotonic()
    service.gate.touch()
    wait_until(lambda: query(primary, OUTCOMES_WAIT) == [(1,)], "the outcome waits for the standby")
    submits = [aside.submit(fleet.submit, n % 2) for n in range(4)]
    assert {submit.result(20) for submit in submits} <= {503, 504}
    assert service.read(done) in {200, 503}
    wait_until(lambda: monotonic() - began > GRACE_SECONDS + 2, "it has lasted longer than the grace period")
    assert fleet.submit() in {503, 504}
    primary.thaw()

    wait_until(lambda: {fleet.submit(web) for web in range(2)} == {202}, "submits are accepted again", 30)
    service.await_state(running, "SUCCEEDED")
    # Its first try was committed after all, when nobody waited for it any more.
    told = f"task={running} attempt=1 kind=gate state=SUCCEEDED ending=returned verdict=yours already"
    wait_until(lambda: any(dispatcher.saw(told) for dispatcher in fleet.dispatchers), "the outcome is acknowledged")
    assert service.slowest() < DEADLINE + SLACK
    fleet.reconcile()
    fleet.stop()

"""What a failover can take back where no standby has to confirm a commit: three losses, each made to happen."""

import pytest

from tests.cluster.cluster import Cluster, query
from tests.cluster.fleet import SETTINGS
from tests.cluster.member import Member
from tests.support.service import Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

LOST_OUTCOME = "the database lost this task's outcome"
MANY = 40
"""More than the ids that a sequence gives out between two of its records in the log."""


@pytest.fixture
def asynchronous(cluster: Cluster) -> Cluster:
    """The cluster, with standbys that nobody waits for."""
    cluster.configure({"synchronous_mode": False, "synchronous_mode_strict": False})
    cluster.await_whole(standby="replica")
    wait_until(lambda: query(cluster.primary, "show synchronous_standby_names") == [("",)], "nobody is waited for")
    return cluster


def await_copies(cluster: Cluster, primary: Member, database: str, states: list[tuple[str]]) -> None:
    """Wait until every standby shows these states."""
    standbys = [member for member in cluster.members if member is not primary]
    seen = "select state from tally.task order by id"
    wait_until(lambda: all(query(each, seen, database) == states for each in standbys), f"they have {states}")


def test_what_a_failover_takes_back_without_a_synchronous_standby(
    service: Service, asynchronous: Cluster, said: list[str]
) -> None:
    service.start("--slots", "1", env=SETTINGS)
    finished = service.accepted("gate")
    service.await_state(finished, "RUNNING")
    claimed = service.accepted()
    primary = asynchronous.primary
    await_copies(asynchronous, primary, service.database.name, [("RUNNING",), ("QUEUED",)])

    primary.freeze_sending()
    service.gate.touch()
    service.await_state(finished, "SUCCEEDED")
    service.await_state(claimed, "SUCCEEDED")
    lost = {service.accepted(): service.book[-1].marker for _ in range(MANY)}
    service.await_all()
    tokens = dict(query(primary, "select id, token from tally.task", service.database.name))
    primary.kill_server()
    asynchronous.await_other_primary(primary)
    service.await_recovery(30)
    for _ in range(MANY):
        service.accepted()
    service.await_all()

    rows = dict(service.database.rows("select id, input ->> 'marker' from tally.task"))
    # A 202's row: gone, and some of the ids are others' now. They are not taken for ours.
    assert not set(lost.values()) & set(rows.values())
    anothers = sorted(set(lost) & set(rows))
    assert service.api.task(anothers[0])["input"]["marker"] != lost[anothers[0]]
    settled = "select tally.settle_submissions('default', %s, %s::uuid[])"
    assert service.database.rows(settled, (anothers, [tokens[task] for task in anothers])) == []
    # A claim: the body ran, and ran again.
    assert service.started.count(claimed) == 2
    assert service.state(claimed) == "SUCCEEDED"
    # A finish: the task was RUNNING again, under a dispatcher that no longer held it.
    state, result, error = service.row(finished)
    assert (state, result, error["reason"]) == ("FAILED", None, LOST_OUTCOME)
    assert service.started.count(finished) == 1
    said.append(
        f"asynchronous: of {MANY + 2} tasks answered 202 and ended, {len(lost)} have no row, {len(anothers)} of their "
        f"ids are others', 1 ran twice, 1 finished task is FAILED"
    )
    asynchronous.mend()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)

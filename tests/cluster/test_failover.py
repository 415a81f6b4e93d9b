"""The primary is killed, frozen, switched over, under load: what was answered stands, and the service goes on."""

from collections.abc import Callable

import pytest

from tests.cluster.cluster import Cluster, is_short, query
from tests.cluster.fleet import COMMITS_WAIT, Fleet
from tests.cluster.member import Member
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


def lose_power(cluster: Cluster, primary: Member) -> None:
    """Nobody can tell it from a network that is down: the others wait until its time as a leader is over."""
    primary.lose_power()
    cluster.await_other_primary(primary)
    primary.start()


def lose_server_in_the_midst(cluster: Cluster, primary: Member) -> None:
    """A web has sent a COMMIT, of which no standby knows yet. Patroni lets another one take over at once."""
    primary.freeze_sending()
    await_commit(primary)
    primary.kill_server()
    cluster.await_other_primary(primary)


def lose_server_before_its_answer(cluster: Cluster, primary: Member) -> None:
    """A web has sent a COMMIT, which has come to the standby that takes over, and is not confirmed."""
    standby = cluster.standby
    standby.freeze_receiving()
    await_commit(primary)
    primary.kill_server()
    standby.thaw()
    cluster.await_other_primary(primary)


def restart_in_the_midst(cluster: Cluster, primary: Member) -> None:
    """Told to wait for a server that crashed, Patroni starts it again; nobody takes over."""
    primary.freeze_sending()
    await_commit(primary)
    primary.kill_server()
    wait_until(lambda: primary.role() == "primary", f"{primary} is back", 60)
    assert cluster.primary is primary


def await_commit(primary: Member) -> None:
    """Wait until the COMMIT of a submit waits for the standby to confirm it."""
    wait_until(lambda: query(primary, COMMITS_WAIT) == [(1,)], "a COMMIT waits for the standby")


KILLS: list[tuple[str, Callable[[Cluster, Member], None]]] = [
    ("the primary's machine lost its power", lose_power),
    ("the primary was killed with a COMMIT under way", lose_server_in_the_midst),
    ("the primary was killed with a COMMIT that had reached the standby", lose_server_before_its_answer),
    ("the primary was killed with a COMMIT under way, and started again", restart_in_the_midst),
    ("the primary's machine lost its power", lose_power),
]


def test_a_primary_that_is_killed(cluster: Cluster, fleet: Fleet) -> None:
    for name, kill in KILLS[: 1 if is_short() else None]:
        cluster.configure({"primary_start_timeout": 60 if kill is restart_in_the_midst else 0})
        cluster.await_whole()

        with fleet.event(name):
            kill(cluster, cluster.primary)

    cluster.await_whole()
    fleet.stop()


def test_a_planned_switchover(cluster: Cluster, fleet: Fleet) -> None:
    old = cluster.primary

    with fleet.event("a planned switchover"):
        cluster.switch_over()
        cluster.await_other_primary(old)

    cluster.await_whole()
    fleet.stop()


def test_a_primary_that_freezes_and_comes_back(cluster: Cluster, fleet: Fleet) -> None:
    old = cluster.primary

    with fleet.event("the primary froze with a COMMIT under way"):
        old.freeze_sending()
        await_commit(old)
        old.freeze()
        cluster.await_other_primary(old)

    with fleet.event("the frozen primary came back"):
        old.thaw()
        cluster.await_whole()

    fleet.stop()


def test_a_synchronous_standby_that_freezes(cluster: Cluster, fleet: Fleet) -> None:
    old = cluster.standby

    with fleet.event("the synchronous standby froze"):
        old.freeze()
        wait_until(lambda: cluster.has_other_standby(old), "another one confirms", 40, cluster.roles)

    old.thaw()
    cluster.await_whole()
    fleet.stop()

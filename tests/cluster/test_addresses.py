"""An address that leads to whichever server is the primary, and moves late: a name's, or a load balancer's."""

import pytest

from tests.cluster.cluster import Cluster, query
from tests.cluster.conftest import USER
from tests.cluster.fleet import SETTINGS
from tests.support.proxy import MakeProxy, Proxy
from tests.support.service import Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

OURS = "select pid, application_name from pg_stat_activity where application_name like 'tally%'"


def move(address: Proxy, port: int) -> None:
    """Let new connections go to another server; those that are open stay where they are."""
    address._do(lambda: setattr(address, "_target", ("127.0.0.1", port)))


def test_who_comes_to_a_server_that_was_demoted_leaves_it_again(
    cluster: Cluster, service: Service, proxy: MakeProxy
) -> None:
    old = cluster.primary
    address = proxy("127.0.0.1", old.port)
    url = f"postgresql://{USER}@127.0.0.1:{address.port}/{service.database.name}"
    service.start(env={**SETTINGS, "DATABASE_URL": url})
    done = service.accepted()
    service.await_state(done, "SUCCEEDED")
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")

    cluster.switch_over()
    cluster.await_whole()
    # Nobody has submitted anything meanwhile: a read, too, asks whether it came to a primary.
    wait_until(lambda: query(old, OURS), "somebody of ours has come to the standby")
    assert service.read(done) == 503
    assert (service.submit().status, service.probe("/readyz")) == (503, 503)
    service.gate.touch()
    service.dispatcher.wait_for("the database is read-only")
    move(address, cluster.primary.port)

    service.await_recovery(20)
    service.await_all()
    assert (service.read(done), service.state(running)) == (200, "SUCCEEDED")
    wait_until(lambda: not query(old, OURS), "nobody is left on the standby", seen=lambda: query(old, OURS))
    service.reconcile()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)

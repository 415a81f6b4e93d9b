"""A database that is read-only for a while, as after a failover: an outage for whoever writes, on both sides."""

from tests.support.faults import read_only
from tests.support.server import TestServer
from tests.support.service import DEADLINE, SLACK, Service
from tests.support.waiting import wait_until


def test_a_database_that_is_read_only_for_a_while_is_an_outage_for_both_programs(
    service: Service, server: TestServer
) -> None:
    service.start()
    old = service.accepted()
    service.await_state(old, "SUCCEEDED")
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")

    with read_only(server, service.database):
        # A backend takes notice between two of its statements: the first few may still be written.
        wait_until(lambda: service.submit().status == 503, "submits are refused")
        refused = [service.submit() for _ in range(5)]
        assert [(entry.status, entry.code) for entry in refused] == [(503, "database-away")] * 5
        canceled = service.api.cancel(running)
        assert (canceled.status, canceled.json()["code"]) == (503, "database-away")
        assert (service.probe("/readyz"), service.probe("/healthz")) == (503, 200)
        service.gate.touch()
        service.dispatcher.wait_for("read-only transaction")
        assert service.state(running) == "RUNNING"
        assert service.probe("/readyz") == 503

    service.await_recovery()
    service.await_all()
    assert service.read(old) == 200
    assert service.row(running) == ("SUCCEEDED", {"canceled": False}, None)
    assert service.slowest() < DEADLINE + SLACK
    service.reconcile()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)

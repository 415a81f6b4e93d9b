"""A planned switchover behind PgBouncer: PAUSE, stop the old server, promote its standby, RELOAD, RESUME."""

import pytest

from tests.pooler.bouncer import Bouncer
from tests.support.database import Database
from tests.support.server import TestServer
from tests.support.service import DEADLINE, SLACK, Service
from tests.support.standby import standby_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scale


def test_the_service_outlives_a_switchover_behind_the_pooler(
    service: Service, bouncer: Bouncer, server: TestServer, database: Database
) -> None:
    with standby_of(database) as there:
        ports = f"127.0.0.1:{server.port},127.0.0.1:{there.server.port}"
        direct = f"postgresql://postgres@{ports}/{database.name}?target_session_attrs=read-write"
        service.start(env={"DATABASE_DIRECT_URL": direct, "TALLY_GRACE_SECONDS": "9"})
        known = service.accepted()
        running = service.accepted("gate")
        service.await_state(running, "RUNNING")

        with service.load(known):
            wait_until(lambda: len(service.book) > 20, "the service is under load")
            bouncer.console("pause")
            server.stop("fast")
            there.server.value("select pg_promote()")
            bouncer.target = there.server.port
            bouncer.write_settings()
            bouncer.console("reload")
            bouncer.console("resume")
            service.database = there
            service.await_recovery()
            service.gate.touch()
            service.await_state(running, "SUCCEEDED")

        assert service.slowest() < DEADLINE + SLACK
        assert service.read(known) == 200
        service.await_all()
        service.reconcile()
        assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)

"""A primary that does not know that it was replaced: whoever reaches it gets no answer that counts."""

import pytest

from tests.cluster.cluster import Cluster, query
from tests.cluster.fleet import SETTINGS, SLACK
from tests.support.service import DEADLINE, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


def test_nothing_is_accepted_on_a_primary_that_was_replaced(cluster: Cluster, service: Service) -> None:
    old = cluster.primary
    name = service.database.name
    at_old = f"postgresql://tally@127.0.0.1:{old.port}/{name}"
    old.freeze()
    cluster.await_other_primary(old)
    old.thaw_server()
    # Patroni still sleeps: this server can be written as far as it knows.
    alone = service.run_program("falcon_app", env={**SETTINGS, "DATABASE_URL": at_old})
    waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name like 'tally-web%'"

    first = service.submit(web=alone, key="k", marker="m")

    assert (first.status, first.code) == (504, "outcome-unknown")
    assert first.seconds < DEADLINE + SLACK
    # Even where somebody breaks the wait off, so that the row is there for all to see, on this server.
    for (pid,) in query(old, waiting):
        query(old, f"select pg_terminate_backend({pid})")
    wait_until(
        lambda: query(old, "select count(*) from tally.task", name) == [(1,)], "the row is there, on the old one"
    )
    # 503 where it has seen by now that commits wait there in vain.
    assert service.submit(web=alone, key="k", marker="m").status in {503, 504}

    # Who knows the others, too, finds the new primary, though the old one is the first to be asked and opens sessions.
    url = cluster.url(name, "tally", first=old)
    service.web = service.run_program("falcon_app", env={**SETTINGS, "DATABASE_URL": url})
    wait_until(lambda: service.submit(key="k", marker="m").status == 202, "the new primary is found", 10)
    assert alone.stop() == 0
    old.thaw()
    cluster.await_whole()
    service.dispatcher = service.run_dispatcher(env=SETTINGS)
    service.await_all()
    service.reconcile()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)

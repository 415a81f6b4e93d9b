"""A database that stops answering without closing anything: the whole server frozen, or the network before it lost."""

from time import monotonic

import pytest

from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.service import DEADLINE, SLACK, Service, thread_count
from tests.support.waiting import wait_until


@pytest.mark.parametrize("seconds", [4, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.parametrize("what", ["server", "network"])
def test_a_database_that_answers_nothing_is_refused_in_time_and_outlived(
    service: Service, server: TestServer, proxy: MakeProxy, what: str, seconds: float
) -> None:
    between = proxy("127.0.0.1", server.port)
    service.start(env={"DATABASE_URL": between.url_for(service.database.url)} if what == "network" else None)
    freeze, thaw = (between.freeze, between.thaw) if what == "network" else (server.freeze, server.thaw)
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")
    both = (service.web, service.dispatcher)

    with service.load(running):
        wait_until(lambda: len(service.book) > 20, "the service is under load")
        threads = [thread_count(each) for each in both]
        most = list(threads)

        def outlasted() -> bool:
            most[:] = [max(pair) for pair in zip(most, map(thread_count, both), strict=True)]
            return service.probe("/readyz") == 503 and monotonic() > end

        end = monotonic() + seconds
        freeze()
        service.gate.touch()
        wait_until(outlasted, f"requests were refused for {seconds} s", seconds + 20)
        assert service.probe("/healthz") == 200
        thaw()
        service.await_recovery()

    assert service.slowest() < DEADLINE + SLACK
    assert most == threads, "threads piled up"
    assert [thread_count(each) for each in both] == threads
    service.await_all()
    assert service.row(running)[0] == "SUCCEEDED"
    service.reconcile()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)

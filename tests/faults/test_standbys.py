"""Standbys: one that is reached by mistake, and one whose confirmation a dispatcher did not get."""

from tests.support.database import Database
from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.standby import SYNC_REP, standby_awaited, standby_of
from tests.support.waiting import wait_until

LONG_GRACE: dict[str, str | None] = {"TALLY_GRACE_SECONDS": "9"}


def test_who_came_to_a_standby_is_back_as_soon_as_the_primary_is(
    service: Service, server: TestServer, database: Database
) -> None:
    with standby_of(database) as there:
        # Nothing in this URL says that the server must be one that can be written.
        url = f"postgresql://postgres@127.0.0.1:{server.port},127.0.0.1:{there.server.port}/{database.name}"
        service.start(env={**LONG_GRACE, "DATABASE_URL": url})
        service.await_state(service.accepted(), "SUCCEEDED")
        server.stop()
        wait_until(lambda: service.submit().status == 503, "submits are refused")
        service.web.wait_for("the database is read-only")

        server.start()

        service.await_recovery()
        service.await_all()
        service.reconcile()
        assert (service.dispatcher.stop(), service.web.stop()) == (0, 0)


def test_a_claim_whose_standby_was_not_waited_for_starts_nothing_until_it_is_confirmed(
    service: Service, server: TestServer, database: Database
) -> None:
    service.start(env={"TALLY_SWEEP_SECONDS": "0.2"})
    database.execute("update tally.queue set paused_at = now()")
    task = service.accepted()
    waiting = f"select pid {SYNC_REP} and application_name like 'tally:%%:loop'"
    with standby_awaited(server):
        database.execute("set synchronous_commit = local; update tally.queue set paused_at = null")
        claiming = wait_until(lambda: database.value(waiting), "a claim waits for the standby")

        database.value("select pg_cancel_backend(%s)", (claiming,))

        service.dispatcher.wait_for("claim.unsettled")
        wait_until(lambda: database.value(waiting), "its settlement waits too")
        assert service.started == []

    service.await_state(task, "SUCCEEDED")
    service.await_all()
    service.reconcile()


def test_while_no_standby_confirms_requests_are_refused_and_few_sessions_wait(
    service: Service, server: TestServer, database: Database
) -> None:
    service.start()
    database.execute("update tally.queue set paused_at = now()")
    tasks = [service.accepted() for _ in range(8)]
    waiting = f"select count(*) {SYNC_REP} and application_name like 'tally-web%%'"
    with standby_awaited(server):
        assert service.api.cancel(tasks[0]).status == 504
        wait_until(lambda: service.probe("/readyz") == 503, "the database is found away")

        answers = [service.api.cancel(task).status for task in tasks[1:]]

        assert set(answers) == {503}
        assert service.read(tasks[-1] + 1) == 503, "nobody can tell that there is no such task"
        assert database.value(waiting) == 1

    service.await_recovery()
    assert service.read(tasks[-1] + 1000) == 404
    database.execute("update tally.queue set paused_at = null")
    service.await_all()
    service.reconcile()

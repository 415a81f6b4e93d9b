"""The reply to a terminal write's COMMIT is lost: what was written is found out by reading, and nothing runs again."""

from random import Random

import pytest

from tests.support.database import Database
from tests.support.faults import FINISH, fault, sleeping
from tests.support.proxy import MakeProxy, Proxy
from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.waiting import wait_until

WRITERS = "application_name like 'tally:%:outcomes%'"


def start_behind(service: Service, way: Proxy) -> None:
    """Start both programs, the dispatcher behind a proxy, with the session that writes outcomes open."""
    service.web = service.run_program("falcon_app")
    env = {"DATABASE_URL": way.url_for(service.database.url), "TALLY_LOG_LEVEL": "debug"}
    service.dispatcher = service.run_dispatcher("--slots", "4", env=env)
    service.await_state(service.accepted(), "SUCCEEDED")


def written_and_not_answered(service: Service, way: Proxy, cancel: bool) -> tuple[int, list[tuple[object, ...]]]:
    """Let an outcome be committed, and keep the reply back; return the task, and its row then."""
    task = service.accepted("gate")
    service.await_state(task, "RUNNING")
    if cancel:
        assert service.api.cancel(task).status == 202
    way.mute()
    service.gate.touch()
    service.await_state(task, "CANCELED" if cancel else "SUCCEEDED")
    return task, row(service, task)


def row(service: Service, task: int) -> list[tuple[object, ...]]:
    return service.database.rows("select * from tally.task where id = %s", (task,))


@pytest.mark.parametrize(
    ("restart", "cancel"),
    [(False, False), (False, True), (True, False)],
    ids=["the connection breaks", "the same of a canceled one", "the server crashes and restarts"],
)
def test_an_outcome_that_was_committed_but_never_acknowledged_is_found_and_not_written_again(
    service: Service, server: TestServer, proxy: MakeProxy, restart: bool, cancel: bool
) -> None:
    way = proxy("127.0.0.1", server.port)
    start_behind(service, way)
    task, end = written_and_not_answered(service, way, cancel)
    if restart:
        server.kill()
    way.cut()
    server.start()
    way.thaw()

    service.dispatcher.wait_for("verdict=yours already")

    assert row(service, task) == end
    assert service.dispatcher.stop() == 0
    service.reconcile()


def test_an_outcome_whose_connection_died_before_its_commit_is_written_once(service: Service) -> None:
    service.start("--slots", "4", env={"TALLY_LOG_LEVEL": "debug"})
    with fault(service.database, FINISH, sleeping(1)):
        task = service.accepted()
        writing = f"select pid from pg_stat_activity where {WRITERS} and wait_event = 'PgSleep'"
        pid = wait_until(lambda: service.database.value(writing), "the outcome is being written")
        service.database.value("select pg_terminate_backend(%s)", (pid,))
        service.await_state(task, "SUCCEEDED")

    wait_until(lambda: service.dispatcher.saw(f"task.finished task={task} "), "the outcome was acknowledged")
    assert service.dispatcher.output.count(f"task.finished task={task} ") == 1
    assert service.dispatcher.stop() == 0
    assert service.started == [task]
    service.reconcile()


def test_whoever_kills_the_writing_backends_under_load_makes_nothing_run_twice(service: Service) -> None:
    database: Database = service.database
    service.start("--slots", "8")
    known = service.accepted()
    moments, killed = Random(7), 0
    with service.load(known, clients=4, pause=0.005):
        for _ in range(60):
            killed += database.value(f"select count(pg_terminate_backend(pid)) from pg_stat_activity where {WRITERS}")
            database.value("select pg_sleep(%s)", (moments.uniform(0, 0.05),))

    assert killed > 20
    service.await_all()
    assert database.rows("select distinct state, attempt from tally.task") == [("SUCCEEDED", 1)]
    assert service.dispatcher.stop() == 0
    assert len(service.started) == database.value("select count(*) from tally.task")
    service.reconcile()


def test_an_outcome_is_written_once_whatever_is_lost_while_the_server_is_frozen(
    service: Service, server: TestServer
) -> None:
    service.start("--slots", "4", env={"TALLY_STATEMENT_SECONDS": "1", "TALLY_LOG_LEVEL": "debug"})
    with fault(service.database, FINISH, sleeping(0.2)):
        task = service.accepted()
        writing = f"select pid from pg_stat_activity where {WRITERS} and wait_event = 'PgSleep'"
        wait_until(lambda: service.database.value(writing), "the outcome is being written")
        server.freeze()
        service.dispatcher.wait_for("outcomes.failed")
        server.thaw()

        service.dispatcher.wait_for(f"task.finished task={task} ")

    assert service.row(task)[0] == "SUCCEEDED"
    assert service.dispatcher.stop() == 0
    assert service.started == [task]
    service.reconcile()

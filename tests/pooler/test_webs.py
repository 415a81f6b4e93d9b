"""Sessions that end behind a web process's back, and web processes that end in the midst of a transaction."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from tests.pooler.bouncer import SETTINGS, Bouncer
from tests.support.database import Database
from tests.support.faults import AFTER_INSERT, insert_fault
from tests.support.program import RunProgram
from tests.support.service import DEADLINE, SLACK, Service, Submitted, at_the_same_time
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scale

GATE_KEY = 4711
WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


def kill_database(bouncer: Bouncer) -> None:
    bouncer.console(f"kill {bouncer.database}")
    bouncer.console(f"resume {bouncer.database}")


def restart(bouncer: Bouncer) -> None:
    bouncer.stop()
    bouncer.start()


def let_clients_time_out(bouncer: Bouncer) -> None:
    bouncer.write_settings(client_idle_timeout="1")
    bouncer.console("reload")
    wait_until(lambda: "client_idle_timeout" in bouncer.log, "idle clients are sent away")


@pytest.mark.parametrize("act", [kill_database, restart, let_clients_time_out])
def test_sessions_that_the_pooler_closed_while_nobody_used_them_are_renewed_without_a_word(
    service: Service, bouncer: Bouncer, act: Callable[[Bouncer], None]
) -> None:
    service.start()
    task = service.accepted()
    assert service.read(task) == 200

    act(bouncer)

    assert service.read(task) == 200
    assert service.submit().status == 202
    assert not service.web.saw("database.away")
    service.await_all()
    service.reconcile()


@contextmanager
def every_server_connection_taken(bouncer: Bouncer) -> Iterator[None]:
    """Hold all that the pool has, each in a transaction of a stranger."""
    with ExitStack() as taken:
        for _ in range(int(SETTINGS["default_pool_size"])):
            connection = taken.enter_context(psycopg.connect(bouncer.url))
            connection.execute("select 1")
        yield


def test_with_every_server_connection_of_the_pool_busy_requests_are_refused_in_time_and_leave_no_row(
    service: Service, bouncer: Bouncer
) -> None:
    service.start()
    task = service.accepted()
    service.await_all()

    with every_server_connection_taken(bouncer):
        submitted, *reads = at_the_same_time(service.submit, *[lambda: service.read(task)] * 3)
        assert (submitted.status, submitted.code, reads) == (503, "database-away", [503] * 3)
        assert (service.probe("/readyz"), service.probe("/healthz")) == (503, 200)
        # Longer than PgBouncer keeps a client waiting.
        wait_until(lambda: "query_wait_timeout" in bouncer.log.partition("process up")[2], "clients are sent away")
        assert service.submit().status == 503

    service.await_recovery()
    assert service.slowest() < DEADLINE + SLACK
    assert service.read(task) == 200
    service.await_all()
    service.reconcile()


def test_with_no_room_for_another_client_requests_are_refused_until_there_is(
    service: Service, bouncer: Bouncer
) -> None:
    bouncer.write_settings(max_client_conn="5")
    service.start()
    task = service.accepted()
    service.await_all()
    service.web.freeze()
    restart(bouncer)
    with ExitStack() as taken:
        with pytest.raises(psycopg.OperationalError, match="no more connections allowed"):
            while True:
                taken.enter_context(psycopg.connect(bouncer.url))
        service.web.send(signal.SIGCONT)

        assert [service.submit().status, service.read(task)] == [503, 503]
        assert min(service.submit().seconds for _ in range(3)) < SLACK

    service.await_recovery()
    assert service.read(task) == 200
    service.await_all()
    service.reconcile()


@contextmanager
def stopped_in_a_transaction(service: Service) -> Iterator[list[Submitted]]:
    """Freeze the web when its submission is written and not committed: it holds the queue for everybody."""
    holder = service.database.connect("test-holder")
    holder.execute("select pg_advisory_lock(%s)", (GATE_KEY,))
    answers: list[Submitted] = []
    with insert_fault(service.database, AFTER_INSERT, f"perform pg_advisory_xact_lock({GATE_KEY})"):
        client = threading.Thread(target=lambda: answers.append(service.submit(bad=True)))
        client.start()
        wait_until(lambda: service.database.value(WAITING) == 1, "the admission is under way")
        service.web.freeze()
        holder.execute("select pg_advisory_unlock(%s)", (GATE_KEY,))
        idle = "select count(*) from pg_stat_activity where state = 'idle in transaction'"
        wait_until(lambda: service.database.value(idle) == 1, "the statement has ended")
        yield answers
        client.join(20)
        assert not client.is_alive()


def test_the_transaction_of_a_web_that_is_killed_ends_with_it(
    service: Service, run_program: RunProgram, database: Database
) -> None:
    """PgBouncer closes the server connection: nothing here waits for a timeout."""
    service.start(env={"TALLY_STATEMENT_SECONDS": "20", "TALLY_STALL_SECONDS": "90"})
    other = run_program("falcon_app")

    with stopped_in_a_transaction(service) as answers:
        service.web.kill()

        assert service.submit(web=other).status == 202
        assert database.value("select count(*) from tally.task where input ? 'bad'") == 0

    assert [answer.status for answer in answers] == [0]
    service.await_all()
    service.reconcile()


def test_the_transaction_of_a_web_that_freezes_is_ended_by_its_own_timeout(
    service: Service, run_program: RunProgram
) -> None:
    service.start(env={"TALLY_STATEMENT_SECONDS": "1"})
    other = run_program("falcon_app")

    with stopped_in_a_transaction(service) as answers:
        assert service.submit(web=other).status == 202
        service.web.send(signal.SIGCONT)

    assert [answer.status for answer in answers] == [503]
    service.await_recovery()
    service.await_all()
    service.reconcile()

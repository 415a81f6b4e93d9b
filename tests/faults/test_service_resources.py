"""Something runs out, connections or disk: refused in time and without a row, no task fails for it, and it passes."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from secrets import token_hex

import psycopg
import pytest

from sql.account import server_account
from tests.support.database import Database
from tests.support.faults import BEFORE_INSERT, CLAIM, FINISH, fault, insert_fault
from tests.support.server import TestServer
from tests.support.service import DEADLINE, SLACK, Service, at_the_same_time
from tests.support.waiting import wait_until

FULL = "raise exception 'could not extend file: No space left on device' using errcode = '53100'"
OURS = "from pg_stat_activity where datname = current_database() and application_name like 'tally%%'"


@contextmanager
def every_connection_taken(database: Database) -> Iterator[None]:
    """Take every connection of the server, ours among them."""
    database.value("select 1")
    with ExitStack() as taken:

        def none_is_ours() -> bool:
            database.execute(f"select pg_terminate_backend(pid) {OURS}")
            try:
                while True:
                    taken.enter_context(psycopg.connect(database.url, autocommit=True))
            except psycopg.OperationalError as error:
                assert "too many clients" in str(error) or "reserved" in str(error), error
            return not database.rows(f"select {OURS}")

        wait_until(none_is_ours, "every connection is taken and none is ours")
        yield


def test_with_every_connection_of_the_server_taken_nothing_fails_and_submits_are_refused_in_time(
    service: Service,
) -> None:
    service.start()
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")

    with every_connection_taken(service.database):
        submitted, read = at_the_same_time(service.submit, lambda: service.read(running))
        assert (submitted.status, submitted.code, read) == (503, "database-away", 503)
        assert [service.submit().status for _ in range(3)] == [503] * 3
        assert service.slowest() < DEADLINE + SLACK
        assert (service.probe("/readyz"), service.probe("/healthz")) == (503, 200)
        service.gate.touch()
        service.dispatcher.wait_for("too many clients")

    service.await_recovery()
    service.await_all()
    assert service.row(running)[0] == "SUCCEEDED"
    assert service.database.value("select count(*) from tally.task where state <> 'SUCCEEDED'") == 0
    service.reconcile()


def test_cancels_that_wait_for_a_locked_row_are_refused_in_time_and_leave_sessions_to_others(
    service: Service,
) -> None:
    service.start("--slots", "1", env={"TALLY_DATABASE_CONNECTIONS": "2"})
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")
    locked = service.accepted()
    holder = service.database.connect("test-holder")
    holder.execute("begin")
    holder.execute("select from tally.task where id = %s for update", (locked,))

    def canceled() -> int:
        return service.api.cancel(locked).status

    def read_behind_them() -> int:
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        wait_until(lambda: service.database.value(waiting) == 1, "a session waits for the row")
        return service.read(running)

    # One holds a session for as long as a statement may take; the next gets it with hardly any time left.
    *refused, read, submitted = at_the_same_time(*[canceled] * 4, read_behind_them, service.submit)

    assert refused == [503] * 4
    assert (read, submitted.status) == (200, 202)
    assert service.slowest() < DEADLINE + SLACK
    assert not service.web.saw("database.away"), "a lock says nothing of the database"
    holder.execute("rollback")
    assert service.state(locked) == "QUEUED"
    assert service.api.cancel(locked).status == 202
    service.gate.touch()
    service.await_all()
    assert service.state(locked) == "CANCELED"
    service.reconcile()


def test_with_every_session_of_the_web_busy_requests_are_refused_in_time_and_leave_no_row(service: Service) -> None:
    service.start(env={"TALLY_DATABASE_CONNECTIONS": "2"})
    task = service.accepted()
    service.await_all()
    holder = service.database.connect("test-holder")
    holder.execute("begin")
    holder.execute("lock table tally.task in access exclusive mode")

    *reads, submitted = at_the_same_time(*[lambda: service.read(task)] * 5, service.submit)

    assert reads == [503] * 5
    assert submitted.status == 503
    assert service.slowest() < DEADLINE + SLACK
    assert not service.web.saw("database.away"), "a lock says nothing of the database"
    holder.execute("rollback")
    assert service.read(task) == 200
    service.accepted()
    service.await_all()
    service.reconcile()


def test_requests_that_wait_for_a_thread_are_answered_by_their_deadline_too(service: Service) -> None:
    service.start(env={"TALLY_REQUEST_THREADS": "2"})
    holder = service.database.connect("test-holder")
    holder.execute("select pg_advisory_lock(tally.queue_lock_key('default'))")

    refused = at_the_same_time(*[service.submit] * 7)

    assert [entry.status for entry in refused] == [503] * 7
    assert service.slowest() < DEADLINE + SLACK
    holder.execute("select pg_advisory_unlock_all()")
    assert service.submit().status == 202
    service.await_all()
    service.reconcile()


def test_a_full_disk_at_the_entrance_is_a_503_and_leaves_no_row(service: Service) -> None:
    service.start()

    with insert_fault(service.database, BEFORE_INSERT, FULL):
        refused = service.submit(bad=True)
        assert (refused.status, refused.code) == (503, "database-away")
        assert service.submit().status == 202, "what still has room is taken"

    service.await_recovery()
    service.await_all()
    service.reconcile()


@pytest.mark.parametrize("step", [CLAIM, FINISH], ids=["claim", "finish"])
def test_a_full_disk_at_a_claim_or_an_outcome_fails_no_task(service: Service, step: str) -> None:
    service.start()
    task = None
    with fault(service.database, step, FULL):
        task = service.accepted()
        service.dispatcher.wait_for("No space left on device")
        assert service.state(task) == ("QUEUED" if step == CLAIM else "RUNNING")

    service.await_all()
    assert service.row(task)[0] == "SUCCEEDED"
    assert service.started == [task]
    service.reconcile()


@pytest.fixture
def small_disk(server: TestServer, database: Database) -> Iterator[str]:
    """The name of a tablespace on a file system of 16 MiB, mounted for this test."""
    if shutil.which("mount") is None:
        pytest.skip("no file system may be mounted here")
    owner = server_account()
    place = server.folder / "server" / f"small_{token_hex(4)}"
    place.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size=16m,mode=700,uid={owner.pw_uid if owner else os.getuid()}"]
    if subprocess.run([*mount, "tmpfs", place], check=False, capture_output=True).returncode:
        place.rmdir()
        pytest.skip("no file system may be mounted here")
    name = place.name
    try:
        server.value(f"create tablespace {name} location '{place}'")
        yield name
        database.execute("drop table if exists filling")
        database.execute("alter table tally.task set tablespace pg_default")
        server.value(f"drop tablespace {name}")
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()


def test_a_disk_that_is_really_full_refuses_in_time_and_fails_no_task(small_disk: str, service: Service) -> None:
    service.database.execute(f"alter table tally.task set tablespace {small_disk}")
    service.database.execute(f"create table filling (bytes text) tablespace {small_disk}")
    service.database.execute("alter table filling alter bytes set storage external")
    service.start()
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")
    fill = service.database.connect("test-filler")
    for size in (1_000_000, 100_000, 7_000):
        with pytest.raises(psycopg.errors.DiskFull):
            while True:
                fill.execute("insert into filling values (repeat('x', %s))", (size,))
    large = [token_hex(50_000)]

    refused = service.submit(padding=large)

    assert (refused.status, refused.code) == (503, "database-away")
    assert refused.seconds < DEADLINE + SLACK
    service.gate.touch()
    service.database.execute("drop table filling")
    wait_until(lambda: service.submit(padding=large).status == 202, "there is room again")
    service.await_recovery()
    service.await_all()
    assert service.row(running)[0] == "SUCCEEDED"
    assert service.database.value("select count(*) from tally.task where state = 'FAILED'") == 0
    service.reconcile()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)

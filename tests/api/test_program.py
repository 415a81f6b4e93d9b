"""`python -m falcon_app` as a process: it waits for its database, serves, drains, and frees its ports."""

import resource
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from tests.api.conftest import RawClient, request, row_count
from tests.support.database import Database
from tests.support.http import Client
from tests.support.program import Program, RunProgram
from tests.support.server import TestServer
from tests.support.waiting import wait_until


@pytest.fixture
def mended(server: TestServer) -> Iterator[None]:
    """Bring the suite's server up whatever the test did to it."""
    yield
    server.bring_up()


def thread_count(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/task").iterdir()))


def file_count(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/fd").iterdir()))


def hold_the_queue(database: Database) -> None:
    database.connect("test-holder").execute("select pg_advisory_lock(tally.queue_lock_key('default'))")


def release_the_queue(database: Database) -> None:
    database.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'test-holder'"
    )


def await_admission_at_the_lock(database: Database) -> None:
    wait_until(
        lambda: database.value("select count(*) from pg_stat_activity where wait_event = 'advisory'") == 1,
        "admission waits for the queue",
    )


def test_it_serves_stops_and_serves_again_at_the_same_ports(run_program: RunProgram) -> None:
    program = run_program("falcon_app")
    listen, admin = (f"127.0.0.1:{port}" for _, port in (program.address, program.admin))
    assert Client(program.address).post("/tasks", json={"text": "x"}).status == 202
    assert Client(program.admin).get("/readyz").status == 200

    assert program.stop() == 0

    again = run_program("falcon_app", "--listen", listen, "--admin", admin)
    assert Client(again.address).get("/tasks/1").status == 200
    assert again.stop() == 0


def test_it_listens_on_ipv6_too(run_program: RunProgram) -> None:
    program = run_program("falcon_app", "--listen", "[::1]:0")

    assert Client(program.address).post("/tasks", json={"text": "x"}).status == 202


def test_a_taken_port_is_told_and_nothing_is_served(run_program: RunProgram) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        program = run_program(
            "falcon_app", "--listen", f"127.0.0.1:{other.getsockname()[1]}", "--admin", "127.0.0.1:0", ready=False
        )

        assert program.wait() == 1
    assert "cannot listen" in program.output
    assert "Traceback" not in program.output


@pytest.mark.usefixtures("mended")
def test_a_database_that_is_not_up_is_waited_for(run_program: RunProgram, server: TestServer) -> None:
    server.stop()
    program = run_program("falcon_app", ready=False)
    program.wait_for("database.away")

    server.start()

    program.wait_ready()
    assert Client(program.address).post("/tasks", json={"text": "x"}).status == 202


@pytest.mark.usefixtures("mended")
def test_a_stop_ends_the_wait_at_once(run_program: RunProgram, server: TestServer) -> None:
    server.freeze()
    program = run_program("falcon_app", ready=False)
    wait_until(lambda: thread_count(program) >= 2, "the program waits")
    handled = Path(f"/proc/{program.pid}/status")
    wait_until(lambda: int(handled.read_text().split("SigCgt:")[1].split()[0], 16) & 1 << 14, "it handles SIGTERM")
    started = monotonic()

    assert program.stop() == 0

    assert monotonic() - started < 1


def test_an_older_schema_is_waited_for(run_program: RunProgram, database: Database) -> None:
    database.execute("create table kept as select * from tally.migration")
    database.execute("delete from tally.migration")
    program = run_program("falcon_app", ready=False)
    program.wait_for("schema.older version=0")

    database.execute("insert into tally.migration select * from kept")

    program.wait_ready()


def test_a_later_schema_is_refused(run_program: RunProgram, database: Database) -> None:
    database.execute("insert into tally.migration (version, name) values (9999, 'later')")

    program = run_program("falcon_app", ready=False)

    assert program.wait() == 1
    assert "the schema is at 9999" in program.output


def test_what_was_asked_before_the_stop_is_answered(run_program: RunProgram, database: Database) -> None:
    program = run_program("falcon_app", env={"TALLY_REQUEST_THREADS": "1"})
    hold_the_queue(database)
    busy, queued, half, idle = (RawClient(program.address) for _ in range(4))
    with busy, queued, half, idle:
        busy.send(request(b'{"n": 0}'))
        await_admission_at_the_lock(database)
        queued.send(request(b'{"n": 1}') + request(b'{"n": 2}'))
        half.send(request(b"", b"Content-Length: 8"), b'{"n"')

        program.send(signal.SIGTERM)
        program.wait_for("web.draining")
        assert idle.is_closed()
        half.send(b": 3}")
        release_the_queue(database)

        answers = [busy.answer(), queued.answer(), queued.answer(), half.answer()]

        assert [answer.status_code for answer in answers] == [202] * 4
        assert [answer.headers.get("connection") for answer in answers[1:]] == [None, "close", "close"]
        assert queued.is_closed()
    assert program.wait() == 0
    assert row_count(database) == 4


def test_a_request_that_never_ends_does_not_hold_the_stop_up(run_program: RunProgram) -> None:
    program = run_program("falcon_app")
    with RawClient(program.address) as half:
        half.send(request(b"", b"Content-Length: 8"), b'{"n"')
        started = monotonic()

        assert program.stop() == 0

        assert monotonic() - started < 3


def test_a_second_signal_ends_the_drain_and_says_that_somebody_was_not_answered(
    run_program: RunProgram, database: Database
) -> None:
    program = run_program("falcon_app")
    hold_the_queue(database)
    with RawClient(program.address) as busy:
        busy.send(request())
        await_admission_at_the_lock(database)
        program.send(signal.SIGTERM)
        program.wait_for("web.draining")

        started = monotonic()
        program.send(signal.SIGINT)

        assert program.wait() == 1
        assert monotonic() - started < 2


@pytest.mark.usefixtures("mended")
def test_a_frozen_database_does_not_hold_the_stop_up(run_program: RunProgram, server: TestServer) -> None:
    program = run_program("falcon_app", env={"TALLY_DRAIN_SECONDS": "5"})
    Client(program.address).post("/tasks", json={"text": "x"})
    server.freeze()
    with RawClient(program.address) as busy:
        busy.send(request())
        started = monotonic()

        assert program.stop() == 0

        assert monotonic() - started < 5
        assert busy.answer().status_code == 503


def test_no_answer_is_lost_when_it_stops_under_load(run_program: RunProgram, database: Database) -> None:
    program = run_program("falcon_app")
    accepted: list[str] = []
    unsure: list[str] = []

    def submit() -> None:
        client = Client(program.address)
        while True:
            marker = str(uuid4())
            try:
                answer = client.post("/tasks", json={"marker": marker})
            except ConnectionRefusedError:
                return
            except OSError:
                unsure.append(marker)
            else:
                assert answer.status == 202
                accepted.append(marker)

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(accepted) > 100, "submissions are accepted", seen=lambda: len(accepted))

    assert program.stop() == 0

    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    rows = {marker for (marker,) in database.rows("select input ->> 'marker' from tally.task")}
    assert set(accepted) <= rows
    assert rows - set(accepted) <= set(unsure)


def test_health_answers_while_every_request_thread_is_busy(run_program: RunProgram, database: Database) -> None:
    program = run_program("falcon_app", env={"TALLY_REQUEST_THREADS": "2"})
    hold_the_queue(database)
    with RawClient(program.address) as one, RawClient(program.address) as two, RawClient(program.address) as three:
        for client in (one, two, three):
            client.send(request())
        await_admission_at_the_lock(database)

        started = monotonic()
        assert Client(program.admin).get("/healthz").status == 200
        assert Client(program.admin).get("/readyz").status == 200
        assert monotonic() - started < 1

        release_the_queue(database)
        assert [client.answer().status_code for client in (one, two, three)] == [202, 202, 202]


def test_threads_and_files_stay_as_they_are(run_program: RunProgram) -> None:
    program = run_program("falcon_app")
    client = Client(program.address)

    def use(times: int) -> None:
        for _ in range(times):
            task = client.post("/tasks", json={"text": "x"}).json()["id"]
            client.get(f"/tasks/{task}")
            client.post(f"/tasks/{task}/cancel")
            client.post("/tasks", body=b"{")

    use(5)
    threads, files = thread_count(program), file_count(program)
    use(100)

    assert thread_count(program) == threads
    # The pool may have opened its other sessions.
    wait_until(lambda: file_count(program) <= files + 4, "files are closed", seen=lambda: file_count(program))


def test_a_process_out_of_files_makes_room_for_the_next_client(run_program: RunProgram) -> None:
    program = run_program("falcon_app")
    assert Client(program.address).post("/tasks", json={"text": "x"}).status == 202
    resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (60, 60))
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(RawClient(program.address))

        assert Client(program.address).post("/tasks", json={"text": "x"}).status == 202


def test_an_admission_thread_that_ends_ends_the_process(run_program: RunProgram) -> None:
    program = run_program("tests.api.web_without_admission", ready=False)

    assert program.wait() == 1
    assert "web.fault" in program.output

"""The database goes away and comes back: refused in time, then at once, then served again, without a restart."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
from falcon.testing import Result

from tests.api.conftest import Api, MakeApi, assert_problem, row_count
from tests.api.test_admission import on_insert
from tests.support.database import Database
from tests.support.proxy import Proxy
from tests.support.server import TestServer
from tests.support.waiting import wait_until

REQUESTS: dict[str, Callable[[Api], Result]] = {
    "submit": lambda api: api.post({"n": 1}),
    "read": lambda api: api.get(1),
    "cancel": lambda api: api.cancel(1),
    "readiness": lambda api: api.admin.simulate_get("/readyz"),
}


@pytest.fixture
def mended(server: TestServer) -> Iterator[None]:
    """Bring the suite's server up whatever the test did to it."""
    yield
    server.bring_up()


def timed(request: Callable[[], Result]) -> tuple[Result, float]:
    started = monotonic()
    answer = request()
    return answer, monotonic() - started


def assert_refused_then_at_once(api: Api, first: str) -> None:
    answer, seconds = timed(lambda: REQUESTS[first](api))
    assert_problem(answer, 503, "database-away")
    assert seconds < 2.7
    wait_until(lambda: api.admission.availability.is_away, "the database is found away")
    for request in REQUESTS.values():
        answer, seconds = timed(lambda request=request: request(api))  # type: ignore[misc]
        assert_problem(answer, 503, "database-away")
        assert seconds < 0.2


def assert_served_again(api: Api, database: Database) -> None:
    wait_until(lambda: api.post({"n": 2}).status_code == 202, "submissions are taken again", 10)
    assert api.get(1).status_code == 200
    assert api.admin.simulate_get("/readyz").status_code == 200
    sessions = database.value(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and starts_with(application_name, 'tally-web')"
    )
    assert sessions <= 1 + api.settings.database_connections


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize("first", ["submit", "read"])
def test_a_stopped_server(api: Api, database: Database, server: TestServer, first: str) -> None:
    api.post({"n": 1})
    api.get(1)
    server.stop()

    assert_refused_then_at_once(api, first)

    server.start()
    assert_served_again(api, database)
    assert row_count(database) == 2


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize("first", ["submit", "read"])
def test_a_frozen_server(api: Api, database: Database, server: TestServer, first: str) -> None:
    api.post({"n": 1})
    api.get(1)
    server.freeze()

    assert_refused_then_at_once(api, first)

    server.thaw()
    assert_served_again(api, database)


@pytest.mark.usefixtures("mended")
def test_an_outage_of_any_length_leaves_no_session_and_no_thread_too_many(
    make_api: MakeApi, database: Database, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make_api(TALLY_REQUEST_SECONDS="0.6", TALLY_DATABASE_CONNECTIONS="2")
    api.post({"n": 1})
    api.get(1)
    server.stop()

    with monkeypatch.context() as patched:
        # Every request tries by itself, as before anybody has found the database away.
        patched.setattr(api.admission.availability, "require", lambda: None)
        for _ in range(5):
            assert_problem(api.get(1), 503, "database-away")
    wait_until(lambda: api.store._pool.get_stats()["pool_size"] == 0, "the pool has given up", 10)

    server.start()
    assert_served_again(api, database)


@pytest.mark.usefixtures("mended")
def test_a_restart_that_nobody_met_is_not_noticed(api: Api, database: Database, server: TestServer) -> None:
    api.post({"n": 1})
    api.get(1)
    server.stop()
    server.start()

    assert [REQUESTS[name](api).status_code for name in ("read", "submit", "readiness", "cancel")] == [
        200,
        202,
        200,
        202,
    ]


def test_a_read_only_database_counts_as_away(api: Api, database: Database, server: TestServer) -> None:
    api.post({"n": 1})
    api.get(1)
    server.value("alter system set default_transaction_read_only = on")
    server.value("select pg_reload_conf()")
    try:
        wait_until(lambda: database.value("show default_transaction_read_only") == "on", "the server is read-only")
        wait_until(lambda: api.post({"n": 2}).status_code == 503, "submissions are refused")

        assert_problem(api.get(1), 503, "database-away")
        assert_problem(api.admin.simulate_get("/readyz"), 503, "database-away")
    finally:
        connection = database.connect()
        connection.execute("set default_transaction_read_only = off")
        connection.execute("alter system reset default_transaction_read_only")
        connection.execute("select pg_reload_conf()")

    assert_served_again(api, database)


def test_a_session_that_became_read_only_is_not_used_again(make_api: MakeApi, database: Database) -> None:
    api = make_api(TALLY_DATABASE_CONNECTIONS="1")
    task = api.post({"n": 1}).json["id"]
    pinned = api.store._pool.getconn(timeout=5)
    pinned.execute("set session characteristics as transaction read only")
    pinned.commit()
    api.store._pool.putconn(pinned)

    assert_problem(api.cancel(task), 503, "database-away")

    wait_until(lambda: not api.admission.availability.is_away, "the database is found to be there")
    assert api.cancel(task).status_code == 202


def test_a_network_that_loses_everything(
    make_api: MakeApi, database: Database, server: TestServer, proxy: Callable[[str, int], Proxy]
) -> None:
    between = proxy("127.0.0.1", server.port)
    api = make_api(between.url_for(database.url))
    api.post({"n": 1})
    api.get(1)
    between.freeze()

    assert_refused_then_at_once(api, "submit")

    between.cut()
    between.thaw()
    assert_served_again(api, database)
    assert row_count(database) == 2


def test_a_cancel_whose_commit_is_not_answered_is_unknown_and_may_be_asked_again(api: Api, database: Database) -> None:
    task = api.post({"n": 1}).json["id"]
    database.execute(
        "create function die() returns trigger language plpgsql as"
        " $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$"
    )
    database.execute(
        "create constraint trigger t after update on tally.task deferrable initially deferred"
        " for each row execute function die()"
    )

    assert (api.cancel(task).status_code, api.get(task).status_code) in {(504, 200), (504, 503)}

    database.execute("drop trigger t on tally.task")
    wait_until(lambda: api.cancel(task).status_code == 202, "the cancel is answered")


def test_a_cancel_of_a_locked_task_is_refused_alone(api: Api, database: Database) -> None:
    tasks = [api.post({"n": n}).json["id"] for n in range(2)]
    holder = database.connect("test-holder")
    holder.execute("begin")
    holder.execute("select from tally.task where id = %s for update", (tasks[0],))

    answer, seconds = timed(lambda: api.cancel(tasks[0]))

    assert_problem(answer, 503, "database-away")
    assert seconds < 2.6
    assert not api.admission.availability.is_away
    assert api.cancel(tasks[1]).status_code == 202
    holder.execute("rollback")
    assert api.get(tasks[0]).json["state"] == "QUEUED"


def test_cancels_that_wait_for_a_locked_row_leave_sessions_to_reads(api: Api, database: Database) -> None:
    locked, free = api.post({"n": 1}).json["id"], api.post({"n": 2}).json["id"]
    holder = database.connect("test-holder")
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'cancel_task'"
    with ThreadPoolExecutor(8) as clients, holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (locked,))
        cancels = [clients.submit(api.cancel, locked) for _ in range(8)]
        wait_until(lambda: database.value(waiting), "cancels wait for the row")

        answers = [timed(lambda: api.get(free)), timed(lambda: api.admin.simulate_get("/readyz"))]

    assert [(answer.status_code, seconds < 1) for answer, seconds in answers] == [(200, True)] * 2
    assert sorted(cancel.result().status_code for cancel in cancels) == [202] + [409] * 7


def test_a_pool_that_is_used_up_refuses_only_who_waits_for_it(make_api: MakeApi, database: Database) -> None:
    api = make_api(TALLY_DATABASE_CONNECTIONS="1", TALLY_REQUEST_SECONDS="0.7")
    api.post({"n": 1})
    taken = api.store._pool.getconn(timeout=5)
    try:
        assert_problem(api.get(1), 503, "database-away")
        assert api.post({"n": 2}).status_code == 202
    finally:
        api.store._pool.putconn(taken)

    assert api.get(1).status_code == 200


@pytest.mark.parametrize("code", ["08006", "57P01", "57014"])
def test_what_a_trigger_says_of_another_server_says_nothing_of_this_one(
    api: Api, database: Database, code: str
) -> None:
    database.execute(
        "create function tally.elsewhere() returns trigger language plpgsql as"
        f" $$ begin raise exception 'the other server is gone' using errcode = '{code}'; end $$;"
        " create trigger elsewhere before insert on tally.task for each row"
        " when (new.input ? 'marked') execute function tally.elsewhere()"
    )

    assert_problem(api.post({"marked": 1}), 503, "database-away")

    assert not api.admission.availability.is_away
    assert api.post({"n": 1}).status_code == 202
    assert row_count(database) == 1


def test_a_doubt_after_a_refused_submit_is_not_taken_for_an_outage(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_insert(database, "new.input ? 'bad'", "raise exception 'no';")
    assert_problem(api.post({"bad": 1}), 422, "invalid-input")
    probed = threading.Event()
    probe = api.admission._probe

    def probe_and_tell() -> None:
        probe()
        probed.set()

    monkeypatch.setattr(api.admission, "_probe", probe_and_tell)

    api.admission.availability.doubt()

    assert probed.wait(10)
    assert not api.admission.availability.is_away

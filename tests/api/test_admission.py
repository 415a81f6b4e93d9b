"""Admission: batches, capacity, one bad row among good ones, and what is known when a commit goes wrong."""

import threading
from concurrent.futures import CancelledError, Future
from time import monotonic
from unittest.mock import Mock

import pytest
from falcon.testing import Result

from falcon_app.batches import Batches
from falcon_app.payloads import Payload
from falcon_app.submissions import Submission
from tests.api.conftest import Api, MakeApi, assert_problem, await_lock_waits, queue_locked, row_count
from tests.support.database import Database
from tests.support.server import TestServer
from tests.support.waiting import wait_until


def await_queued(api: Api, count: int) -> None:
    """Wait until so many submissions were handed over and none is taken."""
    wait_until(lambda: api.admission._inbox.qsize() + len(api.admission._waiting) == count, f"{count} wait")


def results(answers: "list[Future[Result]]") -> list[int]:
    return sorted(answer.result(20).status_code for answer in answers)


def on_insert(database: Database, condition: str, statement: str) -> None:
    database.execute(
        f"create function on_insert() returns trigger language plpgsql as $$ begin"
        f" if {condition} then {statement} end if; return new; end $$"
    )
    database.execute("create trigger t before insert on tally.task for each row execute function on_insert()")


def on_commit(database: Database, condition: str, statement: str) -> None:
    database.execute(
        f"create function on_commit() returns trigger language plpgsql as $$ begin"
        f" if {condition} then {statement} end if; return null; end $$"
    )
    database.execute(
        "create constraint trigger t after insert on tally.task deferrable initially deferred"
        " for each row execute function on_commit()"
    )


def test_what_waits_together_is_admitted_together(api: Api, database: Database) -> None:
    with queue_locked(database):
        first = api.post_aside({"n": -1})
        await_lock_waits(database)
        answers = [api.post_aside({"n": n}) for n in range(50)]
        await_queued(api, 50)

    assert results([first, *answers]) == [202] * 51
    assert database.value("select count(distinct xmin::text) from tally.task") == 2
    assert database.value("select count(*) from tally.task where input = '{}'") == 0


def test_each_submission_of_a_batch_gets_its_own_task(api: Api, database: Database) -> None:
    with queue_locked(database):
        first = api.post_aside({"n": -1})
        await_lock_waits(database)
        answers = {n: api.post_aside({"n": n}) for n in range(20)}
        await_queued(api, 20)

    assert first.result(20).status_code == 202
    for n, answer in answers.items():
        document = answer.result(20).json
        assert document["input"] == {"n": n}
        assert api.get(document["id"]).json["input"] == {"n": n}


def test_a_batch_notifies_once_with_its_lowest_position(api: Api, database: Database) -> None:
    listener = database.connect("test-listener")
    listener.execute("listen tally_work")
    with queue_locked(database):
        first = api.post_aside({"n": -1})
        await_lock_waits(database)
        answers = [api.post_aside({"n": n}) for n in range(5)]
        await_queued(api, 5)
    results([first, *answers])

    payloads = [notification.payload for notification in listener.notifies(timeout=5, stop_after=2)]

    assert payloads == ['{"queue" : "default", "position" : 1}', '{"queue" : "default", "position" : 2}']
    assert list(listener.notifies(timeout=0)) == []


def test_capacity_is_exact_within_a_batch(api: Api, database: Database) -> None:
    database.execute("update tally.queue set max_open = 4")
    with queue_locked(database):
        first = api.post_aside({"n": -1})
        await_lock_waits(database)
        answers = [api.post_aside({"n": n}) for n in range(10)]
        await_queued(api, 10)

    assert results([first, *answers]) == [202] * 4 + [503] * 7
    refused = [answer.result() for answer in answers if answer.result().status_code == 503]
    for answer in refused:
        assert_problem(answer, 503, "overloaded")
    assert row_count(database) == 4


def watch_batches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return a list that grows by each batch's thread and size."""
    batches: list[tuple[str, int]] = []
    admit = Batches.admit

    def watched(self: Batches, batch: list[Submission]) -> None:
        batches.append((threading.current_thread().name, len(batch)))
        admit(self, batch)

    monkeypatch.setattr(Batches, "admit", watched)
    return batches


def test_who_comes_alone_is_written_in_its_own_thread_once_the_server_is_known_to_answer(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = watch_batches(monkeypatch)

    assert api.post({"n": 1}).status_code == 202
    assert api.post({"n": 2}).status_code == 202

    assert batches == [("admission", 1), (threading.current_thread().name, 1)]


def test_nobody_is_written_before_one_that_waits(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.post({"n": 0}).status_code == 202
    batches = watch_batches(monkeypatch)
    waiting = Submission(Payload("echo", '{"n": 1}', {"n": 1}), monotonic() + 2.5)
    api.admission._waiting.append(waiting)

    assert api.post({"n": 2}).status_code == 202

    assert waiting.answer.result(20)
    assert batches == [("admission", 2)]
    assert database.rows("select (input ->> 'n')::int from tally.task order by id") == [(0,), (1,), (2,)]


def test_a_bug_in_a_request_thread_leaves_admission_at_work(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.post({"n": 1}).status_code == 202
    with monkeypatch.context() as broken:
        broken.setattr(Batches, "_admit", Mock(side_effect=RuntimeError("a bug")))
        assert_problem(api.post({"n": 2}), 504, "outcome-unknown")

    assert api.post({"n": 3}).status_code == 202


def test_capacity_is_exact_over_web_processes(make_api: MakeApi, database: Database) -> None:
    database.execute("update tally.queue set max_open = 5")
    apis = [make_api(), make_api()]
    with queue_locked(database):
        firsts = [api.post_aside({"n": 0}) for api in apis]
        await_lock_waits(database, 2)
        answers = [api.post_aside({"n": n}) for api in apis for n in range(8)]
        for api in apis:
            await_queued(api, 8)

    assert results([*firsts, *answers]) == [202] * 5 + [503] * 13
    assert database.value("select tally.open_count('default')") == 5


def test_room_is_found_again_after_a_task_ends(api: Api, database: Database) -> None:
    database.execute("update tally.queue set max_open = 1")
    task = api.post({"n": 1}).json["id"]
    assert_problem(api.post({"n": 2}), 503, "overloaded")

    api.cancel(task)

    assert api.post({"n": 3}).status_code == 202


def test_only_the_row_that_is_refused_is_refused(api: Api, database: Database) -> None:
    on_insert(database, "new.input->>'n' in ('3', '17')", "raise exception 'n = % is bad', new.input->>'n';")
    with queue_locked(database):
        first = api.post_aside({"n": -1})
        await_lock_waits(database)
        answers = {n: api.post_aside({"n": n}) for n in range(20)}
        await_queued(api, 20)

    assert first.result(20).status_code == 202
    for n, answer in answers.items():
        if n in {3, 17}:
            assert assert_problem(answer.result(20), 422, "invalid-input")["detail"] == f"n = {n} is bad"
        else:
            assert answer.result(20).status_code == 202
    assert row_count(database) == 19


def test_only_the_row_that_is_refused_at_commit_is_refused(api: Api, database: Database) -> None:
    on_commit(database, "new.input->>'n' = '3'", "raise exception 'n is bad';")
    with queue_locked(database):
        first = api.post_aside({"n": -1})
        await_lock_waits(database)
        answers = [api.post_aside({"n": n}) for n in range(8)]
        await_queued(api, 8)

    assert results([first, *answers]) == [202] * 8 + [422]
    assert row_count(database) == 8


def test_a_row_that_is_refused_as_a_policy_would_is_refused_alone(api: Api, database: Database) -> None:
    on_insert(database, "new.input->>'n' = '3'", "raise exception 'not yours' using errcode = '42501';")
    with queue_locked(database):
        first = api.post_aside({"n": -1})
        await_lock_waits(database)
        answers = [api.post_aside({"n": n}) for n in range(8)]
        await_queued(api, 8)

    assert results([first, *answers]) == [202] * 8 + [503]
    assert row_count(database) == 8


def test_one_slow_row_times_out_alone(make_api: MakeApi, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    on_insert(database, "new.input->>'n' = '3'", "perform pg_sleep(10);")
    api = make_api(TALLY_STATEMENT_SECONDS="0.1", TALLY_REQUEST_SECONDS="4")
    gate = threading.Event()
    ready = api.admission._session.ready
    monkeypatch.setattr(api.admission._session, "ready", lambda: (gate.wait(5), ready())[1])
    answers = [api.post_aside({"n": n}) for n in range(6)]
    wait_until(lambda: api.admission._inbox.qsize() + len(api.admission._waiting) == 6, "six wait")
    gate.set()

    assert results(answers) == [202] * 5 + [503]
    assert not api.admission.availability.is_away
    assert row_count(database) == 5


def test_a_submission_that_waits_too_long_is_withdrawn_without_a_row(api: Api, database: Database) -> None:
    with queue_locked(database):
        first = api.post_aside({"n": 1})
        await_lock_waits(database)
        started = monotonic()

        assert_problem(api.post({"n": 2}), 503, "database-away")

        assert monotonic() - started < 2.5
        assert_problem(first.result(20), 503, "database-away")
    assert api.post({"n": 3}).status_code == 202
    assert row_count(database) == 1


def test_a_submission_with_little_time_left_is_not_taken(api: Api, database: Database) -> None:
    late = Submission(Payload("echo", "{}", {}), monotonic() + 0.4)

    api.admission._inbox.put(late)

    with pytest.raises(CancelledError):
        late.answer.result(10)
    assert row_count(database) == 0


def test_a_lock_on_the_queue_says_nothing_of_the_database(api: Api, database: Database) -> None:
    task = api.post({"n": 0}).json["id"]
    with queue_locked(database):
        assert_problem(api.post({"n": 1}), 503, "database-away")

        assert api.get(task).status_code == 200


def test_a_full_notification_queue_costs_only_the_hint(api: Api, database: Database) -> None:
    # Raised once, as the server does at COMMIT: the sequence keeps its value though the transaction is rolled back.
    database.execute("create sequence tries")
    on_commit(database, "nextval('tries') = 1", "raise exception 'too many notifications' using errcode = '54000';")
    listener = database.connect("test-listener")
    listener.execute("listen tally_work")

    assert api.post({"n": 1}).status_code == 202

    assert row_count(database) == 1
    assert list(listener.notifies(timeout=0.1)) == []


def test_a_session_lost_while_idle_is_replaced_without_a_word(api: Api, database: Database) -> None:
    assert api.post({"n": 1}).status_code == 202
    terminate(database)

    assert api.post({"n": 2}).status_code == 202


def test_a_session_that_was_lost_long_ago_is_replaced_without_a_word(api: Api, database: Database) -> None:
    assert api.post({"n": 1}).status_code == 202
    connection = api.admission._session._connection
    assert connection is not None
    connection.answered_at = 0.0
    terminate(database)

    assert api.post({"n": 2}).status_code == 202


def test_what_clients_sent_does_not_stand_in_the_servers_log(api: Api, database: Database, server: TestServer) -> None:
    on_insert(database, "new.input ? 'secret'", "raise exception 'not this one';")
    assert api.post({"n": 1}).status_code == 202

    assert api.post({"secret": "a-word-of-mine"}).status_code == 422

    assert "not this one" in server.log
    assert "a-word-of-mine" not in server.log


def test_a_database_that_cannot_be_written_is_not_asked_what_it_remembers(api: Api) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    assert api.post({"n": 1}, headers).status_code == 202
    connection = api.admission._session._connection
    assert connection is not None
    connection.execute("set default_transaction_read_only = on")

    assert_problem(api.post({"n": 1}, headers), 503, "database-away")

    wait_until(lambda: not api.admission.availability.is_away, "another session can write")
    assert api.post({"n": 1}, headers).status_code == 202


def terminate(database: Database) -> None:
    database.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
        " where datname = current_database() and starts_with(application_name, 'tally-web')"
    )


def test_admission_survives_a_bug(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(api.admission._batches, "_written", fail)
        started = monotonic()
        assert api.post({"n": 1}).status_code == 504
        assert monotonic() - started < 1

    assert api.post({"n": 2}).status_code == 202
    assert row_count(database) == 1


def test_no_session_state_is_left_behind(api: Api, database: Database) -> None:
    api.post({"n": 1})
    api.get(1)

    for session in (api.admission._session._connection, api.store._pool.getconn()):
        assert session is not None
        assert session.execute("show statement_timeout").fetchone() == ("0",)
        assert session.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
        session.rollback()
        if session is not api.admission._session._connection:
            api.store._pool.putconn(session)


def test_transactions_say_their_own_timeouts(api: Api, database: Database) -> None:
    database.execute("create table seen (name text, setting text)")
    on_insert(
        database,
        "true",
        "insert into seen select name, setting from pg_settings where name in"
        " ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_isolation');",
    )

    assert api.post({"n": 1}).status_code == 202

    assert dict(database.rows("select * from seen")) == {
        "statement_timeout": "2000",
        "idle_in_transaction_session_timeout": "2000",
        "transaction_isolation": "read committed",
    }


def test_a_row_that_a_trigger_leaves_out_is_refused_and_gets_nobody_elses_task(api: Api, database: Database) -> None:
    on_insert(database, "new.input->>'n' = '1'", "return null;")
    with queue_locked(database):
        answers = [api.post_aside({"n": 0})]
        await_lock_waits(database)
        for n in range(1, 4):
            answers.append(api.post_aside({"n": n}))
            await_queued(api, n)

    left_out = answers.pop(1).result(20)
    assert_problem(left_out, 422, "invalid-input")
    assert [answer.result(20).json["input"]["n"] for answer in answers] == [0, 2, 3]
    assert row_count(database) == 3
    assert_problem(api.post({"n": 1}), 422, "invalid-input")

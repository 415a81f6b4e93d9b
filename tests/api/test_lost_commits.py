"""A submit whose COMMIT is not answered: 202 if it was committed, 503 if not, 504 only while nobody can tell."""

import threading
from collections.abc import Callable
from time import monotonic

import psycopg
import pytest

from falcon_app.payloads import Payload
from falcon_app.submissions import Submission
from sql.connect import Connection
from sql.errors import OutcomeUnknown
from sql.transactions import commit
from tests.api.conftest import JSON, Api, MakeApi, assert_problem, await_lock_waits, queue_locked, row_count
from tests.api.test_admission import on_commit
from tests.support.database import Database
from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.standby import SYNC_REP, standby_awaited
from tests.support.waiting import wait_until


def lose_first_reply(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[Connection], None], module: str = "falcon_app.batches"
) -> None:
    """Let the next COMMIT of a module be sent and its reply be lost; `then` happens in between."""
    lost = threading.Event()

    def lose(connection: Connection) -> None:
        if lost.is_set():
            commit(connection)
            return
        lost.set()
        then(connection)
        connection.close()
        raise OutcomeUnknown("the connection is lost")

    monkeypatch.setattr(f"{module}.commit", lose)


def test_a_commit_that_ended_its_session_is_found_undone(api: Api, database: Database) -> None:
    on_commit(database, "new.input ? 'bad'", "perform pg_terminate_backend(pg_backend_pid());")

    assert_problem(api.post({"bad": 1}), 503, "database-away")

    assert row_count(database) == 0
    assert api.post({"n": 1}).status_code == 202


def test_a_commit_that_was_done_is_found_done(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_first_reply(monkeypatch, psycopg.Connection.commit)

    answer = api.post({"n": 1})

    assert answer.status_code == 202
    assert answer.json["id"] == database.value("select id from tally.task")
    assert row_count(database) == 1


def test_a_strangers_task_under_the_same_id_is_not_ours(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hand_out_again(connection: Connection) -> None:
        connection.rollback()
        database.execute("alter table tally.task alter column id restart")
        database.execute(
            "insert into tally.task (token, queue, kind, input) values (gen_random_uuid(), 'default', 'echo', '{}')"
        )

    lose_first_reply(monkeypatch, hand_out_again)

    assert_problem(api.post({"n": 1}), 503, "database-away")

    assert database.rows("select id, input from tally.task") == [(1, {})]


def test_every_member_of_a_lost_batch_is_answered_for_itself(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("update tally.queue set max_open = 3")
    known = api.post({"n": 0}, {**JSON, "Idempotency-Key": "k"}).json["id"]
    with queue_locked(database):
        first = api.post_aside({"n": -1})
        await_lock_waits(database)
        lose_first_reply(monkeypatch, lambda _: None)
        again = api.post_aside({"n": 0}, {**JSON, "Idempotency-Key": "k"})
        wait_until(lambda: api.admission._inbox.qsize() + len(api.admission._waiting) == 1, "it was handed over")

    # The first of all is lost with its transaction; the task of the key was committed long before.
    assert_problem(first.result(20), 503, "database-away")
    assert again.result(20).json["id"] == known
    assert row_count(database) == 1


def test_a_first_transaction_that_does_not_end_leaves_it_unknown(api: Api, database: Database) -> None:
    on_commit(database, "new.input ? 'bad'", "set local statement_timeout = 0; perform pg_sleep(60);")
    started = monotonic()

    assert_problem(api.post({"bad": 1}), 504, "outcome-unknown")

    assert monotonic() - started < 2.7


def test_a_commit_whose_connection_went_silent_is_settled_within_the_request(
    make_api: MakeApi, database: Database, proxy: MakeProxy
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    api = make_api(way.url_for(database.url))
    assert api.post({"n": 0}).status_code == 202
    on_commit(database, "new.input ? 'slow'", "perform pg_sleep(0.2);")
    answer = api.post_aside({"slow": 1})
    wait_until(lambda: asleep(database), "COMMIT was sent")

    way.mute_open()

    assert answer.result(20).status_code == 202
    assert row_count(database) == 2


def asleep(database: Database) -> bool:
    return bool(database.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'"))


def test_a_wait_for_a_standby_that_was_broken_off_is_settled_by_a_commit_that_is_confirmed(
    api: Api, database: Database, server: TestServer
) -> None:
    waiting = f"select pid {SYNC_REP}"
    assert api.post({"n": 0}).status_code == 202
    with standby_awaited(server):
        answer = api.post_aside({"n": 1})
        first = wait_until(lambda: database.value(waiting), "the commit waits for a standby")
        database.value("select pg_cancel_backend(%s)", (first,))

        second = wait_until(lambda: database.value(waiting + " and pid <> %s", (first,)), "the settlement waits too")

        assert second
        assert not answer.done()

    assert answer.result(20).status_code == 202
    assert row_count(database) == 2


def test_a_warning_that_says_nothing_of_the_commit_is_not_in_its_way(api: Api, database: Database) -> None:
    on_commit(database, "new.input ? 'odd'", "raise warning 'mind your step';")
    assert api.post({"n": 0}).status_code == 202
    session = api.admission._session._connection

    assert api.post({"odd": 1}).status_code == 202

    assert api.admission._session._connection is session


def test_a_settlement_that_is_itself_unanswered_settles_nothing(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_first_reply(monkeypatch, psycopg.Connection.commit)
    tries: list[float] = []

    def lose_twice(connection: Connection) -> None:
        tries.append(monotonic())
        if len(tries) <= 2:
            connection.close()
            raise OutcomeUnknown("the connection is lost again")
        commit(connection)

    monkeypatch.setattr("falcon_app.settling.commit", lose_twice)

    assert api.post({"n": 1}).status_code == 202

    assert len(tries) == 3


def test_what_is_found_lost_after_its_deadline_is_settled_all_the_same(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a process that was frozen in the middle of an admission and wakes.
    deadline = monotonic() + 0.6

    def commit_and_wake_late(connection: Connection) -> None:
        connection.commit()
        wait_until(lambda: monotonic() > deadline, "the deadline has passed")

    lose_first_reply(monkeypatch, commit_and_wake_late)
    submission = Submission(Payload("echo", "{}", {}), deadline)
    api.admission._inbox.put(submission)

    assert '"id":1' in submission.answer.result(5)

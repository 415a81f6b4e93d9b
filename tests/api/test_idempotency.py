"""Idempotency-Key: the same request again is the same task, and somebody else's open transaction holds nobody up."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from falcon.testing import Result

from tests.api.conftest import JSON, Api, MakeApi, assert_problem, await_lock_waits, queue_locked, row_count
from tests.api.test_admission import await_queued, results
from tests.support.database import Database
from tests.support.server import TestServer
from tests.support.standby import SYNC_REP, standby_awaited
from tests.support.waiting import wait_until


def post(api: Api, key: str, body: object = None) -> Result:
    return api.post({"n": 1} if body is None else body, {**JSON, "Idempotency-Key": key})


@contextmanager
def held(database: Database, key: str) -> Iterator[None]:
    """Hold a key by a transaction that stays open and is rolled back."""
    holder = database.connect("test-holder")
    with holder.transaction(force_rollback=True):
        holder.execute(
            "insert into tally.task (token, queue, kind, input, idempotency_key, digest)"
            " values (gen_random_uuid(), 'default', 'echo', '{}', %s, 'x')",
            (key,),
        )
        yield


def test_the_same_request_again_is_the_same_task(api: Api, database: Database) -> None:
    first = post(api, "order 7")

    again = post(api, "order 7")

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json == first.json
    assert again.headers["location"] == first.headers["location"]
    assert row_count(database) == 1


def test_another_body_under_the_key_is_422(api: Api, database: Database) -> None:
    first = post(api, "k")

    problem = assert_problem(post(api, "k", {"n": 2}), 422, "key-reused")

    assert f"task {first.json['id']}" in problem["detail"]
    assert row_count(database) == 1


def test_the_body_counts_as_it_is_stored_not_as_it_was_written(api: Api) -> None:
    first = post(api, "k", b'{"a": 1, "b": "\\u00e9"}')

    again = post(api, "k", '{"b":"é","a":1}'.encode())

    assert again.json["id"] == first.json["id"]


def test_a_full_queue_answers_a_known_key(api: Api, database: Database) -> None:
    database.execute("update tally.queue set max_open = 1")
    first = post(api, "k")
    assert_problem(post(api, "l"), 503, "overloaded")

    assert post(api, "k").json["id"] == first.json["id"]


def test_fifty_at_once_under_one_key_are_one_task(make_api: MakeApi, database: Database) -> None:
    apis = [make_api(), make_api()]

    answers = [apis[n % 2].post_aside({"n": 1}, {**JSON, "Idempotency-Key": "k"}) for n in range(50)]

    assert results(answers) == [202] * 50
    assert len({answer.result().json["id"] for answer in answers}) == 1
    assert row_count(database) == 1


def test_a_key_held_by_an_open_transaction_is_503_and_the_others_of_its_batch_go_on(
    api: Api, database: Database
) -> None:
    with held(database, "k"):
        with queue_locked(database):
            first = api.post_aside({"n": -1})
            await_lock_waits(database)
            stuck = api.post_aside({"n": 1}, {**JSON, "Idempotency-Key": "k"})
            others = [api.post_aside({"n": n}) for n in range(20)]
            others += [api.post_aside({"n": n}, {**JSON, "Idempotency-Key": f"l{n}"}) for n in range(20)]
            await_queued(api, 41)

        assert results([first, *others]) == [202] * 41
        assert_problem(stuck.result(20), 503, "key-in-progress")
    assert database.value("select count(*) from tally.task where idempotency_key = 'k'") == 0


def test_a_held_key_is_refused_from_memory_for_a_moment_and_then_asked_again(api: Api, database: Database) -> None:
    with held(database, "k"):
        assert_problem(post(api, "k"), 503, "key-in-progress")
    assert_problem(post(api, "k"), 503, "key-in-progress")

    wait_until(lambda: post(api, "k").status_code == 202, "the key is asked for again")


def test_a_row_locked_by_somebody_does_not_hold_its_key_up(api: Api, database: Database) -> None:
    first = post(api, "k")
    holder = database.connect("test-holder")

    with holder.transaction():
        holder.execute("select from tally.task for update")

        assert post(api, "k").json["id"] == first.json["id"]


def test_a_commit_that_waits_for_another_s_notification_is_not_a_held_key(
    make_api: MakeApi, database: Database, server: TestServer
) -> None:
    waiting = "select count(*) from pg_locks where not granted and waitstart < clock_timestamp() - interval '0.3 s'"
    database.execute(f"alter database {database.name} set synchronous_commit = local")
    api = make_api()
    notifier = database.connect("test-notifier")
    notifier.execute("set synchronous_commit = on")
    with standby_awaited(server), ThreadPoolExecutor(1) as aside:
        # Whoever notifies holds one lock of the whole server until its commit is confirmed.
        aside.submit(notifier.execute, "create table public.t (); notify somewhere")
        wait_until(lambda: database.value(f"select count(*) {SYNC_REP}"), "somebody's notification waits for a standby")

        answer = api.post_aside({"n": 1}, {**JSON, "Idempotency-Key": "k"})
        wait_until(lambda: answer.done() or database.value(waiting), "the submit has waited longer than for a key")
        database.value("select pg_cancel_backend(%s)", (notifier.info.backend_pid,))

    assert answer.result(20).status_code == 202


def test_a_task_that_no_standby_has_is_not_answered_again(api: Api, database: Database, server: TestServer) -> None:
    assert api.post({"n": 0}).status_code == 202
    with standby_awaited(server):
        database.execute(
            "set synchronous_commit = local;"
            "insert into tally.task (token, queue, kind, input, idempotency_key, digest) values (gen_random_uuid(),"
            " 'default', 'text.stats', '{\"n\": 1}', 'k', tally.submission_digest('text.stats', '{\"n\": 1}'))"
        )

        answer = api.post_aside({"n": 1}, {**JSON, "Idempotency-Key": "k"})

        wait_until(
            lambda: answer.done() or database.value(f"select count(*) {SYNC_REP}"), "the answer waits for a standby"
        )
        assert not answer.done()
    assert answer.result(20).status_code == 202
    assert row_count(database) == 2


@pytest.mark.parametrize("key", ["", "k" * 256, "caf\u00e9", "a\tb", "a\x7f"])
def test_a_key_that_cannot_be_kept_is_400(api: Api, database: Database, key: str) -> None:
    assert_problem(post(api, key), 400, "bad-request")

    assert row_count(database) == 0


@pytest.mark.parametrize("key", ["k" * 255, '"quoted"', "a, b; c=d", "8e03978e-40d5-43dd-bc93-6894a57f9324"])
def test_a_key_is_taken_as_it_is_sent(api: Api, database: Database, key: str) -> None:
    assert post(api, key).status_code == 202

    assert database.value("select idempotency_key from tally.task") == key

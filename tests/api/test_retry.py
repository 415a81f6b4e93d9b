"""Retrying by hand: a new task like one that failed or was canceled, which itself stays as it is."""

from typing import Any

import psycopg
import pytest
from falcon.testing import Result

from tests.api.conftest import JSON, Api, assert_problem, row_count
from tests.api.test_lost_commits import lose_first_reply
from tests.sql import calls
from tests.support.database import Database

KEY = {"Idempotency-Key": "again"}


def retry(api: Api, task: object, headers: dict[str, str] | None = None) -> Result:
    return api.public.simulate_post(f"/tasks/{task}/retry", headers=headers)


def failed(api: Api, database: Database, body: object = None) -> int:
    """Submit, and let a dispatcher of the task's queue say that it failed."""
    submitted = api.post({"kind": "echo", "input": {"n": 1}} if body is None else body)
    assert submitted.status_code == 202, submitted.text
    end(database, submitted.json["id"], calls.failed)
    return int(submitted.json["id"])


def end(database: Database, task: int, ending: Any) -> None:
    connection = database.connect("test-dispatcher")
    dispatcher = calls.register(connection)
    queue = database.value("select queue from tally.task where id = %s", (task,))
    assert [claim.id for claim in calls.claim(connection, dispatcher, queue=queue, only=[task])] == [task]
    assert calls.finish(connection, dispatcher, ending(task)) == {task: "written"}


def test_a_failed_task_is_repeated_by_a_new_one_and_stays_as_it_is(api: Api, database: Database) -> None:
    old = failed(api, database)
    before = api.get(old).text

    answer = retry(api, old)

    assert answer.status_code == 202
    new = answer.json
    assert answer.headers["location"] == f"/tasks/{new['id']}"
    assert new["id"] != old
    assert (new["retry_of"], new["state"], new["attempt"], new["attempts"]) == (old, "QUEUED", 0, [])
    assert (new["kind"], new["input"], new["queue"]) == ("echo", {"n": 1}, "default")
    assert api.get(new["id"]).json == new
    assert api.get(old).text == before


def test_a_canceled_task_is_repeated(api: Api) -> None:
    old = api.post({"text": "Go one"}).json["id"]
    assert api.cancel(old).json["state"] == "CANCELED"

    answer = retry(api, old)

    assert answer.status_code == 202
    assert (answer.json["retry_of"], answer.json["input"]) == (old, {"text": "Go one"})


def test_what_repeats_a_task_may_be_repeated_too(api: Api) -> None:
    first = api.post({"n": 1}).json["id"]
    api.cancel(first)
    second = retry(api, first).json["id"]
    api.cancel(second)

    assert retry(api, second).json["retry_of"] == second
    assert retry(api, first).json["retry_of"] == first


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "SUCCEEDED"])
def test_what_has_not_failed_is_409_without_a_row(api: Api, database: Database, state: str) -> None:
    task = api.post({"n": 1}).json["id"]
    if state == "RUNNING":
        connection = database.connect("test-dispatcher")
        calls.claim(connection, calls.register(connection))
    elif state == "SUCCEEDED":
        end(database, task, calls.succeeded)
    assert api.get(task).json["state"] == state

    problem = assert_problem(retry(api, task), 409, "not-retryable")

    assert state in problem["detail"]
    assert row_count(database) == 1


def test_a_task_that_is_not_there_any_more_is_404(api: Api, database: Database) -> None:
    old = failed(api, database)
    assert_problem(retry(api, old + 1), 404, "not-found")

    database.execute("delete from tally.task where id = %s", (old,))

    assert_problem(retry(api, old), 404, "not-found")
    assert row_count(database) == 0


def test_a_full_queue_refuses_it_without_a_row(api: Api, database: Database) -> None:
    old = failed(api, database)
    database.execute("update tally.queue set max_open = 1")
    assert api.post({"n": 1}).status_code == 202

    assert_problem(retry(api, old), 503, "overloaded")

    assert row_count(database) == 2


def test_under_a_key_it_is_safe_to_repeat(api: Api, database: Database) -> None:
    old = failed(api, database)
    first = retry(api, old, KEY)
    database.execute("update tally.queue set max_open = 1")

    again = retry(api, old, KEY)

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json == first.json
    assert row_count(database) == 2


def test_without_a_key_each_request_makes_a_task(api: Api, database: Database) -> None:
    old = failed(api, database)

    assert retry(api, old).json["id"] != retry(api, old).json["id"]

    assert row_count(database) == 3


def test_a_key_belongs_to_the_retry_of_one_task(api: Api, database: Database) -> None:
    old, other = failed(api, database), failed(api, database)
    body = {"kind": "echo", "input": {"n": 1}}
    assert retry(api, old, KEY).status_code == 202
    assert api.post(body, {**JSON, "Idempotency-Key": "plain"}).status_code == 202

    assert_problem(retry(api, other, KEY), 422, "key-reused")
    assert_problem(api.post(body, {**JSON, **KEY}), 422, "key-reused")
    assert_problem(retry(api, old, {"Idempotency-Key": "plain"}), 422, "key-reused")
    assert_problem(retry(api, old, {"Idempotency-Key": ""}), 400, "bad-request")

    assert row_count(database) == 4


def test_a_commit_that_was_done_is_found_done(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    old = failed(api, database)
    lose_first_reply(monkeypatch, psycopg.Connection.commit)

    answer = retry(api, old)

    assert (answer.status_code, answer.json["retry_of"]) == (202, old)
    assert row_count(database) == 2


def test_a_commit_that_was_not_done_is_found_undone(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = failed(api, database)
    lose_first_reply(monkeypatch, lambda _: None)

    assert_problem(retry(api, old, KEY), 503, "database-away")

    assert row_count(database) == 1
    assert retry(api, old, KEY).status_code == 202
    assert row_count(database) == 2


def test_an_input_that_fits_its_kind_no_more_is_not_submitted_again(api: Api, database: Database) -> None:
    old = failed(api, database)
    publisher = database.connect("test-publisher")
    calls.publish(publisher, input_schema={"properties": {"n": {"type": "string"}}})

    assert_problem(retry(api, old), 422, "invalid-input", "/input/n")

    assert row_count(database) == 1
    calls.publish(publisher, input_schema={"properties": {"n": {"type": "integer"}}})
    assert retry(api, old).status_code == 202


def test_it_goes_to_the_queue_of_the_task_that_it_repeats(api: Api, database: Database) -> None:
    publisher = database.connect("test-publisher")
    calls.publish(publisher, queue="echoes")
    old = failed(api, database)
    calls.publish(publisher, queue="moved")

    assert retry(api, old).json["queue"] == "echoes"
    assert api.post({"kind": "echo", "input": {"n": 1}}).json["queue"] == "moved"


def test_an_input_is_repeated_to_the_digit(api: Api, database: Database) -> None:
    body = b'{"kind": "echo", "input": {"n": [1e300, 1.0, 1.50, 9007199254740993], "s": "\\ud83d\\ude00"}}'
    old = failed(api, database, body)

    new = retry(api, old).json["id"]

    same = "select count(distinct input::text) from tally.task where id in (%s, %s)"
    assert database.value(same, (old, new)) == 1


def test_a_stored_input_that_no_request_could_bring_is_answered_and_not_a_fault(api: Api, database: Database) -> None:
    old = failed(api, database)
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    database.execute("update tally.task set input = %s::jsonb where id = %s", (deep, old))

    assert_problem(retry(api, old), 422, "invalid-input", "/input")

    assert row_count(database) == 1


def test_only_a_post_retries(api: Api) -> None:
    answer = api.public.simulate_get("/tasks/1/retry")

    assert_problem(answer, 405, "method-not-allowed")
    assert "POST" in answer.headers["allow"]
    assert_problem(retry(api, "x"), 404, "not-found")

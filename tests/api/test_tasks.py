"""Submit, read and cancel: what a client sees."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.api.conftest import Api, assert_problem, row_count
from tests.support.database import Database


def test_a_submission_is_a_row_before_it_is_answered(api: Api, database: Database) -> None:
    answer = api.post({"kind": "echo", "input": {"a": [1, None, "ü"]}})

    assert answer.status_code == 202
    document = answer.json
    assert answer.headers["location"] == f"/tasks/{document['id']}"
    assert answer.headers["content-type"] == "application/json"
    assert list(document) == [
        "id",
        "kind",
        "queue",
        "state",
        "cancel_requested",
        "attempt",
        "input",
        "result",
        "error",
        "created_at",
        "started_at",
        "finished_at",
        "due_at",
        "retry_of",
        "attempts",
    ]
    assert document["kind"] == "echo"
    assert document["input"] == {"a": [1, None, "ü"]}
    assert (document["queue"], document["state"], document["attempt"]) == ("default", "QUEUED", 0)
    assert database.rows("select id, kind, input from tally.task") == [(document["id"], "echo", document["input"])]


def test_a_body_without_kind_is_the_input_of_text_stats(api: Api) -> None:
    answer = api.post({"text": "Go one"})

    assert (answer.json["kind"], answer.json["input"]) == ("text.stats", {"text": "Go one"})


def test_a_body_without_kind_may_have_a_member_named_input(api: Api) -> None:
    assert api.post({"input": 3}).json["input"] == {"input": 3}


def test_a_task_reads_as_it_was_answered(api: Api) -> None:
    submitted = api.post({"text": "Go one"})

    assert api.get(submitted.json["id"]).content == submitted.content


def test_head_tells_the_length_and_no_body(api: Api) -> None:
    task = api.post({"text": "Go one"})

    head = api.public.simulate_head(f"/tasks/{task.json['id']}")

    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == len(task.content)


def test_no_such_task_is_404(api: Api) -> None:
    odd = ["0", "01", "+1", "-1", "1.0", "1e0", "%201", "%2531", "%D9%A1", "x", "null", "%00", "%ff", "1_0"]
    for task in (*odd, "1", "%31%32", "9223372036854775807", "9223372036854775808", "9" * 5000):
        assert_problem(api.get(task), 404, "not-found")
        assert_problem(api.cancel(task), 404, "not-found")


def test_canceling_a_queued_task_ends_it(api: Api) -> None:
    task = api.post({"text": "x"}).json["id"]

    answer = api.cancel(task)

    assert answer.status_code == 202
    assert answer.json["state"] == "CANCELED"
    assert answer.json["error"] == {"reason": "canceled", "detail": "not started"}
    assert api.get(task).json == answer.json


def test_canceling_a_running_task_is_accepted_again_and_again(api: Api, database: Database) -> None:
    task = api.post({"text": "x"}).json["id"]
    database.execute(
        "update tally.task set state = 'RUNNING', claimed_by = gen_random_uuid(), claim_number = 1, attempt = 1,"
        " started_at = clock_timestamp()"
    )

    answers = [api.cancel(task), api.cancel(task)]

    assert [answer.status_code for answer in answers] == [202, 202]
    assert [answer.json["state"] for answer in answers] == ["RUNNING", "RUNNING"]
    assert [answer.json["cancel_requested"] for answer in answers] == [True, True]
    assert answers[0].content == answers[1].content


def test_canceling_a_terminal_task_is_409_and_changes_nothing(api: Api) -> None:
    task = api.post({"text": "x"}).json["id"]
    ended = api.cancel(task)

    problem = assert_problem(api.cancel(task), 409, "already-terminal")

    assert "CANCELED" in problem["detail"]
    assert api.get(task).content == ended.content


def test_an_input_longer_than_a_notification_is_kept_unchanged(api: Api) -> None:
    for text in ("x" * 7_900, "x" * 8_000, "x" * 8_100, "x" * 200_000, "€" * 2_700):
        assert api.get(api.post({"text": text}).json["id"]).json["input"] == {"text": text}


def test_no_stored_result_makes_a_read_fail(api: Api, database: Database) -> None:
    numbers = ['{"n": 1e4000}', '{"n": 123456789012345678901234567890.5}', '{"n": 1e-4000}']
    for value in (*numbers, '[{"": {"": [[[]]]}}]', "[" * 900 + "]" * 900, '"\U0010ffff"', "null"):
        task = api.post({"text": "x"}).json["id"]
        database.execute(
            "update tally.task set state = 'SUCCEEDED', result = %s::jsonb, finished_at = 'infinity' where id = %s",
            (value, task),
        )

        answer = api.get(task)

        assert answer.status_code == 200
        assert b'"state":"SUCCEEDED"' in answer.content


def test_times_are_utc_whatever_the_database_says(api: Api, database: Database) -> None:
    database.execute(f"alter database {database.name} set timezone = 'Asia/Tokyo'")

    created = api.post({"text": "x"}).json["created_at"]

    assert created.endswith("Z")
    assert abs((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()) < 5


def test_ids_in_locations_are_whole(api: Api, database: Database) -> None:
    database.execute("alter table tally.task alter column id restart with 9223372036854775000")

    answer = api.post({"text": "x"})

    assert answer.headers["location"] == "/tasks/9223372036854775000"
    assert api.get(9223372036854775000).status_code == 200


def test_a_trigger_s_refusal_is_422_in_its_own_words(api: Api, database: Database) -> None:
    refuse(database, "new.kind = 'bad'", "no such customer")

    problem = assert_problem(api.post({"kind": "bad", "input": {}}), 422, "invalid-input")

    assert problem["detail"] == "no such customer"
    assert row_count(database) == 0


def refuse(database: Database, condition: str, message: str) -> None:
    database.execute(
        f"create function refuse() returns trigger language plpgsql as $$ begin"
        f" if {condition} then raise exception '{message}'; end if; return new; end $$"
    )
    database.execute("create trigger refuse before insert on tally.task for each row execute function refuse()")


def test_a_missing_queue_is_no_fault_of_the_client(api: Api, database: Database) -> None:
    database.execute("delete from tally.queue")

    assert_problem(api.post({"text": "x"}), 503, "database-away")


def test_a_fault_says_nothing_private(api: Api, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(api.store, "read", fail)

    answer = api.get(1)

    assert_problem(answer, 500, "internal-error")
    assert "swordfish" not in answer.text
    assert "swordfish" in caplog.text

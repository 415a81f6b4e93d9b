"""task_document and utc_text: no stored row can make a read fail, and times are UTC everywhere."""

import json
import re
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from sql.connect import Connection
from tests.sql.calls import (
    Ended,
    call,
    cancel,
    claim,
    document,
    finish,
    publish,
    register,
    retry,
    submit_one,
    submit_rows,
    succeeded,
)
from tests.support.database import Database

DIGITS = "1" + "0" * 5000

ODD_JSON = {
    "a number of 5,000 digits": f'{{"n": {DIGITS}}}',
    "a fraction of 5,000 digits": f'{{"n": 0.{DIGITS}}}',
    "nested 3,000 deep": '{"n": ' + "[" * 3000 + "]" * 3000 + "}",
    "every escape": '{"\\"\\\\\\n\\u0001\\u2028\\ud83d\\ude00": "\\u007f\\uffff"}',
    "an empty key": '{"": {"": ""}}',
    "html": '{"n": "</script><!--"}',
}


def text_of(connection: Connection, task: int) -> str:
    ((text,),) = call(connection, "task_by_id", id=task)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("odd", ODD_JSON.values(), ids=ODD_JSON.keys())
def test_an_odd_input_and_result_are_read_as_they_are_stored(database: Database, odd: str) -> None:
    connection = database.connect()
    task = submit_one(connection)
    database.execute(
        "update tally.task set input = %s::jsonb, result = %s::jsonb, state = 'SUCCEEDED', finished_at = now()",
        (odd, odd),
    )

    text = text_of(connection, task)

    stored = database.value("select input::text from tally.task")
    assert f'"input":{stored},"result":{stored},' in text


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("infinity", None),
        ("-infinity", None),
        ("2026-03-29 01:30:00+00", "2026-03-29T01:30:00.000000Z"),
        ("2026-07-01 12:00:00.123456+09", "2026-07-01T03:00:00.123456Z"),
        ("294276-12-31 23:59:59+00", "294276-12-31T23:59:59.000000Z"),
    ],
)
def test_any_stored_time_is_shown(database: Database, stored: str, shown: str | None) -> None:
    connection = database.connect()
    task = submit_one(connection)
    database.execute("update tally.task set created_at = %s::text::timestamptz", (stored,))

    assert document(connection, task)["created_at"] == shown


def test_times_are_utc_whatever_the_database_and_the_session_say(database: Database) -> None:
    database.execute(f"alter database {database.name} set timezone = 'Asia/Tokyo'")
    connection = database.connect()
    connection.execute("set datestyle = 'German'")
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    finish(connection, dispatcher, succeeded(task))

    seen = document(connection, task)

    assert connection.execute("show timezone").fetchone() == ("Asia/Tokyo",)
    for name in ("created_at", "started_at", "finished_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", seen[name])
        passed = datetime.now(UTC) - datetime.fromisoformat(seen[name])
        assert abs(passed.total_seconds()) < 10


def test_every_reader_gets_the_same_bytes(database: Database) -> None:
    connection, other = database.connect(), database.connect()
    other.execute("set timezone = 'America/New_York'")
    other.execute("set extra_float_digits = 0")
    task = submit_one(connection)

    assert text_of(connection, task) == text_of(other, task)


def test_members_come_in_one_order(database: Database) -> None:
    connection = database.connect()

    names = list(json.loads(text_of(connection, submit_one(connection))))

    assert names == [
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


def test_a_task_that_ended_shows_the_attempt_that_ended_it(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    assert document(connection, task)["attempts"] == []
    finish(connection, dispatcher, succeeded(task))

    seen = document(connection, task)

    times = {"started_at": seen["started_at"], "finished_at": seen["finished_at"]}
    assert seen["attempts"] == [{"attempt": 1, **times, "error": None}]


def test_a_task_that_never_began_shows_no_attempt(database: Database) -> None:
    connection = database.connect()

    assert cancel(connection, submit_one(connection))["attempts"] == []


def test_the_earlier_attempts_come_first_in_their_order(database: Database) -> None:
    connection = database.connect()
    publish(connection)
    dispatcher = register(connection)
    task = submit_one(connection)
    for attempt in (1, 2):
        claim(connection, dispatcher, attempt)
        error = json.dumps({"reason": f'the {attempt}. "é" </script>'})
        retry(connection, dispatcher, Ended(id=task, attempt=attempt, error=error, delay=0))
    claim(connection, dispatcher, 3)
    finish(connection, dispatcher, succeeded(task, attempt=3))

    seen = document(connection, task)["attempts"]

    assert [each["attempt"] for each in seen] == [1, 2, 3]
    assert [each["error"] and each["error"]["reason"] for each in seen] == [
        'the 1. "é" </script>',
        'the 2. "é" </script>',
        None,
    ]


def test_a_retry_by_hand_names_the_task_it_repeats(database: Database) -> None:
    connection = database.connect()
    first = submit_one(connection)

    (second,) = submit_rows(connection, [uuid4()], retry_of=[first])

    assert second.id is not None
    assert document(connection, second.id)["retry_of"] == first
    assert json.loads(second.document or "")["retry_of"] == first


def test_an_unknown_task_has_no_document(database: Database) -> None:
    assert call(database.connect(), "task_by_id", id=404) == []
    assert submit_rows(database.connect(), []) == []


def test_readiness_is_one_document_of_dispatchers_and_queues(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    submit_one(connection)

    ((text,),) = call(connection, "readiness")

    report = json.loads(text)
    assert [each["id"] for each in report["dispatchers"]] == [str(dispatcher)]
    assert report["dispatchers"][0]["beaten_at"].endswith("Z")
    assert report["queues"] == [{"queue": "default", "max_open": 10000, "open": 1, "paused": False}]
    assert 0 <= report["notification_queue_usage"] <= 1

"""What dispatchers published of a kind holds for the very next submit: its schema, and the queue its tasks go to."""

import json
import logging
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any

import psycopg
import pytest
from falcon.testing import Result
from psycopg.sql import SQL, Identifier
from psycopg.types.json import Json

from falcon_app.batches import MOST_READINGS
from falcon_app.transactions import read_kinds
from sql.connect import Connection
from tests.api.conftest import JSON, Api, MakeApi, assert_problem, await_lock_waits, queue_locked, row_count
from tests.api.test_admission import await_queued
from tests.api.test_lost_commits import lose_first_reply
from tests.sql.calls import publish
from tests.support.database import Database, role_of_its_own
from tests.support.waiting import wait_until

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TEXT = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}


def echo(n: object, kind: str = "echo") -> dict[str, Any]:
    return {"kind": kind, "input": {"n": n}}


def publisher(database: Database) -> Callable[..., int]:
    connection = database.connect("test-publisher")
    return lambda kind="echo", **declared: publish(connection, kind, **declared)


def warm(api: Api) -> None:
    """Let the next submit be written in its own thread, and the kinds be known."""
    assert api.post({"kind": "warm", "input": {}}).status_code == 202


def read_none(api: Api) -> None:
    """Let the kinds be known, of which there are none yet."""
    assert api.admission.kinds.learn(api.store.kinds(monotonic() + 1)).revision == 0


def test_an_input_that_does_not_fit_is_422_with_its_place_and_no_row(api: Api, database: Database) -> None:
    publish = publisher(database)
    publish(input_schema=NUMBER)
    publish("text.stats", input_schema={"properties": {"text": {"type": "string"}}})

    problem = assert_problem(api.post(echo("7")), 422, "invalid-input", "/input/n")

    assert problem["detail"] == 'the value is not of type "integer"'
    assert_problem(api.post({"kind": "echo", "input": {}}), 422, "invalid-input", "/input/n")
    assert_problem(api.post({"text": 7}), 422, "invalid-input", "/text")
    assert row_count(database) == 0
    assert api.post(echo(7)).status_code == 202
    assert api.post({"text": "Go one"}).status_code == 202


def test_a_kind_that_nobody_published_is_accepted_as_it_comes(api: Api, database: Database) -> None:
    publisher(database)(input_schema=NUMBER)

    answer = api.post(echo("7", kind="nobody.knows"))

    assert (answer.status_code, answer.json["queue"]) == (202, "default")


def test_what_is_published_between_two_submits_holds_for_the_second(api: Api, database: Database) -> None:
    publish = publisher(database)
    warm(api)
    assert api.post(echo("7")).status_code == 202

    publish(input_schema=NUMBER)
    assert_problem(api.post(echo("7")), 422, "invalid-input", "/input/n")
    assert api.post(echo(7)).status_code == 202

    publish(input_schema=TEXT)
    assert api.post(echo("7")).status_code == 202
    assert_problem(api.post(echo(7)), 422, "invalid-input", "/input/n")

    publish(input_schema=None)
    assert api.post(echo(7)).status_code == 202
    assert row_count(database) == 5


def test_every_web_process_enforces_what_is_published(make_api: MakeApi, database: Database) -> None:
    publish = publisher(database)
    apis = [make_api() for _ in range(3)]
    for schema, fits, does_not in [(NUMBER, 7, "7"), (TEXT, "7", 7), (NUMBER, 7, "7")]:
        publish(input_schema=schema)
        for api in apis:
            assert_problem(api.post(echo(does_not)), 422, "invalid-input", "/input/n")
            assert api.post(echo(fits)).status_code == 202

    assert row_count(database) == 9


def test_a_submission_that_was_checked_by_an_older_schema_is_not_admitted(api: Api, database: Database) -> None:
    publish = publisher(database)
    with queue_locked(database):
        answers: dict[object, Future[Result]] = {"first": api.post_aside(echo("first"))}
        await_lock_waits(database)
        for later in ("second", 3, "fourth", 5):
            answers[later] = api.post_aside(echo(later))
        await_queued(api, 4)
        publish(input_schema=NUMBER)

    for n, answer in answers.items():
        if isinstance(n, int):
            assert answer.result(20).json["input"] == {"n": n}
        else:
            assert_problem(answer.result(20), 422, "invalid-input", "/input/n")
    assert database.rows("select input ->> 'n' from tally.task order by id") == [("3",), ("5",)]


def test_a_submission_that_was_checked_by_an_older_schema_goes_to_the_queue_of_now(
    api: Api, database: Database
) -> None:
    publish = publisher(database)
    with queue_locked(database):
        answers = [api.post_aside(echo(0))]
        await_lock_waits(database)
        answers += [api.post_aside(echo(n, kind=kind)) for n, kind in enumerate(["mail", "other"])]
        await_queued(api, 2)
        publish(queue="echoes")
        publish("mail", queue="mails")

    assert [answer.result(20).json["queue"] for answer in answers] == ["echoes", "mails", "default"]


def test_tasks_of_several_queues_that_come_together_each_find_their_own_room(api: Api, database: Database) -> None:
    publish = publisher(database)
    publish("mail", queue="mails")
    database.execute("update tally.queue set max_open = 1 where name = 'mails'")
    warm(api)
    with queue_locked(database):
        first = api.post_aside(echo(0))
        await_lock_waits(database)
        answers = [api.post_aside(echo(n, kind=kind)) for n in range(3) for kind in ("echo", "mail")]
        await_queued(api, 6)

    documents = [answer.result(20) for answer in [first, *answers]]
    assert sorted(answer.status_code for answer in documents) == [202] * 5 + [503] * 2
    for answer in documents:
        if answer.status_code == 503:
            assert_problem(answer, 503, "overloaded")
    assert database.rows("select queue, kind, count(*) from tally.task group by 1, 2 order by 1, 2") == [
        ("default", "echo", 4),
        ("default", "warm", 1),
        ("mails", "mail", 1),
    ]


def test_each_queues_dispatchers_are_woken(api: Api, database: Database) -> None:
    publish = publisher(database)
    publish("mail", queue="mails")
    listener = database.connect("test-listener")
    listener.execute("listen tally_work")

    assert api.post(echo(1, kind="mail")).status_code == 202

    (notification,) = listener.notifies(timeout=5, stop_after=1)
    assert json.loads(notification.payload)["queue"] == "mails"


def test_a_queue_that_is_missing_refuses_its_own_kinds_only(api: Api, database: Database) -> None:
    publish = publisher(database)
    publish("mail", queue="mails")
    warm(api)
    database.execute("delete from tally.queue where name = 'mails'")
    with queue_locked(database):
        first = api.post_aside(echo(0))
        await_lock_waits(database)
        mail, other = api.post_aside(echo(1, kind="mail")), api.post_aside(echo(2))
        await_queued(api, 2)

    assert_problem(mail.result(20), 503, "database-away")
    assert [first.result(20).status_code, other.result(20).status_code] == [202, 202]
    assert not api.admission.availability.is_away


def test_a_queue_that_is_gone_because_its_kinds_moved_refuses_nobody(api: Api, database: Database) -> None:
    publish = publisher(database)
    publish("mail", queue="mails")
    assert api.post(echo(1, kind="mail")).json["queue"] == "mails"

    publish("mail", queue="letters")
    database.execute("delete from tally.queue where name = 'mails'")

    assert api.post(echo(2, kind="mail")).json["queue"] == "letters"


def test_a_kind_that_was_removed_is_accepted_as_it_comes(api: Api, database: Database) -> None:
    publish = publisher(database)
    publish(input_schema=NUMBER, queue="echoes")
    assert_problem(api.post(echo("7")), 422, "invalid-input", "/input/n")

    database.execute("delete from tally.kind")

    answer = api.post(echo("7"))
    assert (answer.status_code, answer.json["queue"]) == (202, "default")


def test_a_schema_that_cannot_be_used_leaves_its_kind_unchecked_and_is_told_once(
    api: Api, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    publish = publisher(database)
    publish("broken", input_schema={"$ref": "http://127.0.0.1:1/schema"}, queue="mails")
    publish(input_schema=NUMBER)

    assert api.post(echo("7", kind="broken")).json["queue"] == "mails"
    assert api.post(echo(7)).status_code == 202
    assert_problem(api.post(echo("7")), 422, "invalid-input", "/input/n")
    publish("other", input_schema=NUMBER)
    assert api.post(echo("8", kind="broken")).status_code == 202

    told = [line for line in caplog.messages if line.startswith("kind.unchecked")]
    assert len(told) == 1
    assert "kind='broken'" in told[0]

    publish("broken", input_schema=NUMBER)
    assert_problem(api.post(echo("7", kind="broken")), 422, "invalid-input", "/input/n")


def test_the_kinds_are_read_only_when_they_have_changed_or_something_is_refused(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    readings: list[str] = []

    def count(connection: Connection, *rest: Any) -> Any:
        readings.append("a submit")
        return read_kinds(connection, *rest)

    def count_check(deadline: float) -> Any:
        readings.append("a check")
        return kinds(deadline)

    kinds = api.store.kinds
    monkeypatch.setattr("falcon_app.batches.read_kinds", count)
    monkeypatch.setattr(api.store, "kinds", count_check)
    assert [api.post(echo(n)).status_code for n in range(3)] == [202] * 3
    assert readings == ["a check"]

    publisher(database)(input_schema=NUMBER)
    assert [api.post(echo(n)).status_code for n in range(3)] == [202] * 3
    assert readings == ["a check", "a submit"]

    assert api.post(echo("x")).status_code == 422
    assert readings == ["a check", "a submit", "a check"]
    assert caplog.messages.count("kinds.read revision=1") == 1


def test_a_database_that_goes_away_while_the_kinds_are_read_costs_no_certainty(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm(api)
    publisher(database)(input_schema=NUMBER)

    def lose(connection: Connection, *rest: Any) -> Any:
        database.execute("select pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
        return read_kinds(connection, *rest)

    with monkeypatch.context() as lost:
        lost.setattr("falcon_app.batches.read_kinds", lose)
        assert_problem(api.post(echo(1)), 503, "database-away")
    assert row_count(database) == 1

    wait_until(lambda: not api.admission.availability.is_away, "the database is found again")
    assert api.post(echo(1)).status_code == 202
    assert_problem(api.post(echo("1")), 422, "invalid-input", "/input/n")


def test_a_database_that_is_away_when_something_is_refused_is_said_instead(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher(database)(input_schema=NUMBER)
    assert api.post(echo(1)).status_code == 202
    api.admission.availability.lost("a test")
    monkeypatch.setattr(api.admission, "_probe", lambda: None)

    assert_problem(api.post(echo("1")), 503, "database-away")


def test_another_server_after_an_outage_may_have_others_under_the_same_revision(api: Api, database: Database) -> None:
    publisher(database)(input_schema=None)
    assert api.post(echo("1")).status_code == 202
    database.execute("update tally.kind set input_schema = %s", (Json(NUMBER),))

    api.admission.availability.lost("a test")
    wait_until(lambda: not api.admission.availability.is_away, "the database is found again")

    assert_problem(api.post(echo("1")), 422, "invalid-input", "/input/n")
    assert row_count(database) == 1


@pytest.mark.parametrize("readable", ["", "(revision)"])
def test_kinds_that_may_not_be_read_refuse_every_submit_without_a_row(
    make_api: MakeApi, database: Database, readable: str
) -> None:
    publisher(database)(input_schema=NUMBER)
    with role_of_its_own(database) as role:
        api = make_api(database.url.replace("postgres@", f"{role}@"))
        owner = database.connect("test-owner")
        owner.execute(SQL("grant usage, select on all sequences in schema tally to {}").format(Identifier(role)))
        owner.execute(SQL("revoke select on tally.kind from {}").format(Identifier(role)))
        if readable:
            owner.execute(SQL("grant select (revision) on tally.kind to {}").format(Identifier(role)))

        for _ in range(2):
            assert_problem(api.post(echo(1)), 503, "database-away")
        assert row_count(database) == 0
        assert not api.admission.availability.is_away

        owner.execute(SQL("grant select on tally.kind to {}").format(Identifier(role)))
        assert api.post(echo(1)).status_code == 202


def test_kinds_that_never_stand_still_are_given_up_without_a_row(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = publisher(database)
    read_none(api)
    published = [publish(max_attempts=2)]

    def publish_again(connection: Connection, *rest: Any) -> Any:
        rows = read_kinds(connection, *rest)
        published.append(publish(max_attempts=3 + len(published)))
        return rows

    monkeypatch.setattr("falcon_app.batches.read_kinds", publish_again)

    assert_problem(api.post(echo(1)), 503, "database-away")

    assert len(published) == MOST_READINGS + 1
    assert row_count(database) == 0
    assert not api.admission.availability.is_away


def test_the_check_comes_before_the_key(api: Api, database: Database) -> None:
    publish = publisher(database)
    headers = {**JSON, "Idempotency-Key": "k"}
    first = api.post(echo("7"), headers)
    publish(input_schema=NUMBER)

    assert_problem(api.post(echo("7"), headers), 422, "invalid-input", "/input/n")

    publish(input_schema=TEXT)
    assert api.post(echo("7"), headers).json["id"] == first.json["id"]
    assert row_count(database) == 1


def test_a_key_is_found_again_though_its_kind_has_moved_to_another_queue(api: Api, database: Database) -> None:
    headers = {**JSON, "Idempotency-Key": "k"}
    first = api.post(echo(7), headers)
    publisher(database)(queue="echoes")

    again = api.post(echo(7), headers)

    assert (again.status_code, again.json) == (202, first.json)
    assert row_count(database) == 1


def test_a_commit_that_is_lost_is_settled_in_its_own_queue(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher(database)("mail", queue="mails")
    assert api.post(echo(0, kind="mail")).status_code == 202
    with queue_locked(database):
        # The lock of another queue is in nobody's way.
        lose_first_reply(monkeypatch, psycopg.Connection.commit)
        answer = api.post(echo(1, kind="mail"))

    assert (answer.status_code, answer.json["queue"]) == (202, "mails")
    assert row_count(database) == 2


def test_who_waits_in_vain_for_a_queue_that_its_kind_has_left_learns_of_it(api: Api, database: Database) -> None:
    read_none(api)
    publisher(database)("mail", queue="mails")
    with queue_locked(database):
        assert_problem(api.post(echo(1, kind="mail")), 503, "database-away")

        assert api.post(echo(2, kind="mail")).status_code == 202
    assert database.rows("select queue, input from tally.task") == [("mails", {"n": 2})]


def test_what_waits_while_others_read_the_kinds_is_checked_by_those(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = publisher(database)
    readings: list[int] = []

    def count(connection: Connection, *rest: Any) -> Any:
        readings.append(1)
        return read_kinds(connection, *rest)

    monkeypatch.setattr("falcon_app.batches.read_kinds", count)
    with queue_locked(database):
        first = api.post_aside(echo(0))
        await_lock_waits(database)
        answers = [api.post_aside(echo(1)), api.post_aside(echo("2"))]
        await_queued(api, 2)
        publish(input_schema=NUMBER, queue="echoes")
        assert api.admission.kinds.learn(api.store.kinds(monotonic() + 1)).revision == 1

    assert [answer.result(20).json["queue"] for answer in (first, answers[0])] == ["echoes", "echoes"]
    assert_problem(answers[1].result(20), 422, "invalid-input", "/input/n")
    # The first one had been taken before.
    assert len(readings) == 1


def test_a_commit_that_was_not_done_is_found_undone_behind_a_reading_of_the_kinds(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher(database)("mail", queue="mails")
    lose_first_reply(monkeypatch, lambda _: None)

    assert_problem(api.post(echo(1, kind="mail")), 503, "database-away")

    assert row_count(database) == 0
    assert api.post(echo(1, kind="mail")).status_code == 202


def test_the_worst_that_may_be_sent_is_answered_soon_and_in_few_words(make_api: MakeApi, database: Database) -> None:
    # It takes milliseconds on a machine that does nothing else; of the library's own making, 80 s.
    api = make_api(TALLY_REQUEST_SECONDS="30")
    node = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/N"}, {"type": "boolean"}]}
    publisher(database)(
        input_schema={
            "$defs": {"N": {"type": "object", "properties": {"c": {"type": "array", "items": node}}}},
            "$ref": "#/$defs/N",
            "additionalProperties": False,
            "properties": {"c": True},
        }
    )
    value: dict[str, Any] = {"c": ["s"]}
    for _ in range(30):
        value = {"c": [value, *["s"] * 6000]}

    for given, pointer in [(value, "/input/c/0"), ({"é" * 100_000: 1}, "/input")]:
        answer = api.post({"kind": "echo", "input": given})
        assert_problem(answer, 422, "invalid-input", pointer)
        assert len(answer.content) < 4096

    assert row_count(database) == 0

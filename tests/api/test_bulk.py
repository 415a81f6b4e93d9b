"""Bulk submits: all of a request's tasks or none, and the one that is to blame is named."""

import json
import threading
from concurrent.futures import Future
from time import monotonic
from typing import Any

import psycopg
import pytest
from falcon.testing import Result

from falcon_app.batches import MOST_READINGS
from falcon_app.transactions import read_kinds
from sql.connect import Connection
from tests.api import test_lost_commits
from tests.api.conftest import JSON, Api, MakeApi, assert_problem, await_lock_waits, queue_locked, row_count
from tests.api.test_admission import on_commit, on_insert, results
from tests.api.test_idempotency import held
from tests.sql.calls import publish
from tests.support.database import Database
from tests.support.server import TestServer
from tests.support.waiting import wait_until


def echo(n: int, key: str | None = None) -> dict[str, Any]:
    task: dict[str, Any] = {"kind": "echo", "input": {"n": n}}
    return task if key is None else {**task, "idempotency_key": key}


def post(api: Api, tasks: object, headers: dict[str, str] | None = None) -> Result:
    return post_body(api, json.dumps({"tasks": tasks}).encode(), headers)


def post_body(api: Api, body: bytes, headers: dict[str, str] | None = None) -> Result:
    return api.public.simulate_post("/tasks/batch", body=body, headers=headers or JSON)


def post_aside(api: Api, tasks: object) -> "Future[Result]":
    """Submit from a thread of its own."""
    answer: Future[Result] = Future()
    threading.Thread(target=lambda: answer.set_result(post(api, tasks)), daemon=True).start()
    return answer


def assert_names(answer: Result, status: int, code: str, pointer: str | None, index: int | None) -> dict[str, Any]:
    problem = assert_problem(answer, status, code, pointer)
    assert problem.get("index") == index
    return problem


def test_each_task_is_a_row_and_their_ids_come_in_the_order_given(api: Api) -> None:
    answer = post(api, [echo(3), {"kind": "text.stats", "input": {"text": "Go one"}}, echo(1)])

    assert answer.status_code == 202
    assert list(answer.json) == ["ids"]
    assert "location" not in answer.headers
    tasks = [api.get(task).json for task in answer.json["ids"]]
    assert [(task["kind"], task["input"]) for task in tasks] == [
        ("echo", {"n": 3}),
        ("text.stats", {"text": "Go one"}),
        ("echo", {"n": 1}),
    ]


def test_a_thousand_tasks_are_queued_in_their_order_in_one_transaction_with_one_notification(
    api: Api, database: Database
) -> None:
    listener = database.connect("test-listener")
    listener.execute("listen tally_work")

    ids = post(api, [echo(n) for n in range(1000)]).json["ids"]

    rows = database.rows("select id, (input ->> 'n')::integer from tally.task order by position")
    assert rows == list(zip(ids, range(1000), strict=True))
    assert database.value("select count(distinct xmin::text) from tally.task") == 1
    (notification,) = listener.notifies(timeout=5, stop_after=1)
    assert json.loads(notification.payload) == {"queue": "default", "position": 1}
    assert list(listener.notifies(timeout=0)) == []


def test_where_not_all_have_room_none_is_made(api: Api, database: Database) -> None:
    database.execute("update tally.queue set max_open = 4")
    assert api.post({"n": 0}).status_code == 202

    assert_names(post(api, [echo(n) for n in range(4)]), 503, "overloaded", None, None)

    assert row_count(database) == 1
    assert post(api, [echo(n) for n in range(3)]).status_code == 202
    assert database.value("select tally.open_count('default')") == 4


def test_capacity_is_exact_with_single_submits_beside_and_over_web_processes(
    make_api: MakeApi, database: Database
) -> None:
    database.execute("update tally.queue set max_open = 50")
    apis = [make_api(), make_api()]
    with queue_locked(database):
        bulks = [post_aside(api, [echo(n) for n in range(7)]) for api in apis for _ in range(6)]
        singles = [api.post_aside({"n": n}) for api in apis for n in range(3)]
        await_lock_waits(database, 4)

    made = 7 * results(bulks).count(202) + results(singles).count(202)
    assert made == row_count(database)
    # What was refused had no room: not even seven more would have had it.
    assert 44 <= made <= 50
    assert {answer.result().json.get("code") for answer in bulks + singles} == {None, "overloaded"}


def test_the_same_request_again_is_the_same_tasks_also_when_the_queue_is_full(api: Api, database: Database) -> None:
    database.execute("update tally.queue set max_open = 2")
    tasks = [echo(1, "k"), echo(2, "l")]
    first = post(api, tasks)
    assert_names(post(api, [*tasks, echo(3)]), 503, "overloaded", None, None)

    again = post(api, tasks)

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json == first.json
    assert row_count(database) == 2


def test_tasks_whose_keys_are_known_and_new_ones_come_together(api: Api, database: Database) -> None:
    known = api.post({"kind": "echo", "input": {"n": 1}}, {**JSON, "Idempotency-Key": "k"}).json["id"]

    ids = post(api, [echo(0), echo(1, "k"), echo(2, "l")]).json["ids"]

    assert ids[1] == known
    assert [api.get(task).json["input"]["n"] for task in ids] == [0, 1, 2]
    assert row_count(database) == 3


def test_a_key_of_another_body_refuses_the_whole_and_is_named(api: Api, database: Database) -> None:
    known = post(api, [echo(1, "k")]).json["ids"][0]

    answer = post(api, [echo(0), echo(0, "l"), echo(2, "k"), echo(3, "k2")])

    problem = assert_names(answer, 422, "key-reused", "/tasks/2/idempotency_key", 2)
    assert f"task {known} " in problem["detail"]
    assert row_count(database) == 1


def test_a_key_that_somebody_holds_refuses_the_whole_and_is_remembered_for_a_moment(
    api: Api, database: Database
) -> None:
    tasks = [echo(n, f"k{n}") for n in range(40)]
    with held(database, "k27"):
        assert_names(post(api, tasks), 503, "key-in-progress", "/tasks/27/idempotency_key", 27)
        assert api.post({"n": 0}).status_code == 202
    assert_names(post(api, tasks), 503, "key-in-progress", "/tasks/27/idempotency_key", 27)
    assert row_count(database) == 1

    wait_until(lambda: post(api, tasks).status_code == 202, "the key is asked for again")


def test_the_first_row_that_the_database_refuses_is_named_and_none_is_made(api: Api, database: Database) -> None:
    on_insert(database, "new.input->>'n' in ('617', '618', '900')", "raise exception 'n = % is bad', new.input->>'n';")

    problem = assert_names(post(api, [echo(n) for n in range(1000)]), 422, "invalid-input", "/tasks/617", 617)

    assert problem["detail"] == "n = 617 is bad"
    assert row_count(database) == 0
    assert post(api, [echo(n) for n in range(617)]).status_code == 202


def test_a_row_that_a_trigger_leaves_out_is_named_and_none_is_made(api: Api, database: Database) -> None:
    on_insert(database, "new.input->>'n' = '1'", "return null;")

    assert_names(post(api, [echo(n) for n in range(3)]), 422, "invalid-input", "/tasks/1", 1)

    assert row_count(database) == 0


def test_a_row_that_is_refused_at_commit_is_named(api: Api, database: Database) -> None:
    on_commit(database, "new.input->>'n' = '5'", "raise exception 'not 5';")

    problem = assert_names(post(api, [echo(n) for n in range(9)]), 422, "invalid-input", "/tasks/5", 5)

    assert problem["detail"] == "not 5"
    assert row_count(database) == 0


def test_rows_that_are_refused_only_together_name_nobody(api: Api, database: Database) -> None:
    database.execute("create unique index one_of_each on tally.task ((input ->> 'n'))")

    assert_names(post(api, [echo(1), echo(2), echo(3), echo(1)]), 422, "invalid-input", None, None)

    assert row_count(database) == 0


def test_a_row_that_is_not_found_in_time_is_refused_without_a_name(api: Api, database: Database) -> None:
    on_insert(database, "new.input->>'n' = '5'", "perform pg_sleep(1.8); raise exception 'not 5';")

    problem = assert_names(post(api, [echo(n) for n in range(9)]), 422, "invalid-input", None, None)

    assert problem["detail"] == "not 5"
    assert row_count(database) == 0


SHAPES = [
    (b"[]", "invalid-input", "", None),
    (b"{}", "invalid-input", "/tasks", None),
    (b'{"tasks": {}}', "invalid-input", "/tasks", None),
    (b'{"tasks": null}', "invalid-input", "/tasks", None),
    (b'{"tasks": []}', "invalid-input", "/tasks", None),
    (json.dumps({"tasks": [echo(0)] * 1001}).encode(), "invalid-input", "/tasks", None),
    (b'{"tasks": [{"kind": "echo", "input": {}}], "queue": "x"}', "unknown-member", "/queue", None),
    (b'{"kind": "echo", "input": {}}', "unknown-member", "/kind", None),
    (b'{"tasks": [3]}', "invalid-input", "/tasks/0", 0),
    (b'{"tasks": [{"kind": "echo", "input": {}}, {"input": {}}]}', "invalid-input", "/tasks/1/kind", 1),
    (b'{"tasks": [{"text": "Go one"}]}', "unknown-member", "/tasks/0/text", 0),
    (b'{"tasks": [{"kind": "echo"}]}', "invalid-input", "/tasks/0/input", 0),
    (b'{"tasks": [{"kind": "echo", "input": []}]}', "invalid-input", "/tasks/0/input", 0),
    (b'{"tasks": [{"kind": "echo", "input": {}, "a/b": 1}]}', "unknown-member", "/tasks/0/a~1b", 0),
    (json.dumps({"tasks": [echo(0), {"kind": "k" * 256, "input": {}}]}).encode(), "invalid-input", "/tasks/1/kind", 1),
    *(
        (json.dumps({"tasks": [{**echo(0), "idempotency_key": key}]}).encode(), "invalid-input", place, 0)
        for place in ["/tasks/0/idempotency_key"]
        for key in [None, 7, "", "k" * 256, "caf\u00e9", "a\tb"]
    ),
    (
        json.dumps({"tasks": [echo(0, "k"), echo(1), echo(0, "k")]}).encode(),
        "invalid-input",
        "/tasks/2/idempotency_key",
        2,
    ),
]


def test_another_shape_is_422_with_its_place_and_no_row(api: Api, database: Database) -> None:
    for body, code, pointer, index in SHAPES:
        assert_names(post_body(api, body), 422, code, pointer, index)

    assert row_count(database) == 0


MALFORMED = [
    (b"", None, None),
    (b'{"tasks": [', "", None),
    (b'{"tasks": [], "tasks": []}', "/tasks", None),
    (
        rb'{"tasks": [{"kind": "echo", "input": {}}, {"kind": "echo", "input": {"text": "x\u0000"}}]}',
        "/tasks/1/input/text",
        1,
    ),
    (b'{"tasks": [{"kind": "echo", "input": {"a": 1, "a": 2}}]}', "/tasks/0/input/a", 0),
    (b'{"tasks": [{"kind": "echo", "input": {}}, NaN]}', "/tasks/1", 1),
]


def test_what_cannot_be_stored_is_400_with_its_place_and_no_row(api: Api, database: Database) -> None:
    for body, pointer, index in MALFORMED:
        assert_names(post_body(api, body), 400, "malformed-body", pointer, index)

    assert row_count(database) == 0


def test_depth_is_counted_from_each_input(api: Api) -> None:
    def body(levels: int) -> bytes:
        nested = b'{"a":' * levels + b"1" + b"}" * levels
        return b'{"tasks":[{"kind":"echo","input":{}},{"kind":"echo","input":%s}]}' % nested

    assert post_body(api, body(64)).status_code == 202
    assert_names(post_body(api, body(65)), 400, "malformed-body", "/tasks/1/input" + "/a" * 64, 1)


def test_the_limit_of_a_body_holds_for_the_whole(api: Api, database: Database) -> None:
    limit = api.settings.max_body_bytes
    frame = len(b'{"tasks":[{"kind":"echo","input":{"a":""}}]}')

    def body(size: int) -> bytes:
        return b'{"tasks":[{"kind":"echo","input":{"a":"%s"}}]}' % (b"x" * (size - frame))

    assert post_body(api, body(limit)).status_code == 202
    assert_problem(post_body(api, body(limit + 1)), 413, "body-too-large")
    numbers = b",".join([b'{"kind":"echo","input":{"n":[%s]}}' % b",".join([b"1e308"] * 40)] * 100)
    problem = post_body(api, b'{"tasks":[%s]}' % numbers).json
    assert problem["code"] == "malformed-body"
    assert problem["pointer"].startswith(f"/tasks/{problem['index']}/input/n/")
    assert row_count(database) == 1


def test_a_request_is_declared_as_for_one_task_and_has_no_key_of_its_own(api: Api, database: Database) -> None:
    assert_problem(post(api, [echo(0)], {"Content-Type": "text/plain"}), 415, "unsupported-media-type")
    assert_problem(post(api, [echo(0)], {**JSON, "Content-Encoding": "gzip"}), 415, "unsupported-media-type")
    assert_problem(post(api, [echo(0)], {**JSON, "Idempotency-Key": "k"}), 400, "bad-request")
    answer = api.public.simulate_get("/tasks/batch")
    assert_problem(answer, 405, "method-not-allowed")
    assert "POST" in answer.headers["allow"]

    assert row_count(database) == 0


def test_a_full_notification_queue_costs_only_the_hint(api: Api, database: Database) -> None:
    database.execute("create sequence tries")
    on_commit(database, "nextval('tries') = 1", "raise exception 'too many notifications' using errcode = '54000';")

    answer = post(api, [echo(n) for n in range(3)])

    assert answer.status_code == 202
    assert row_count(database) == 3


def lose_first_reply(monkeypatch: pytest.MonkeyPatch, then: Any) -> None:
    test_lost_commits.lose_first_reply(monkeypatch, then, "falcon_app.bulk_writing")


def test_a_commit_that_was_done_is_found_done(api: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_first_reply(monkeypatch, psycopg.Connection.commit)

    answer = post(api, [echo(n) for n in range(20)])

    assert answer.status_code == 202
    assert answer.json["ids"] == [task for (task,) in database.rows("select id from tally.task order by position")]
    assert row_count(database) == 20


def test_a_commit_that_was_not_done_is_found_undone(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(api, [echo(0, "k")])
    lose_first_reply(monkeypatch, lambda _: None)

    assert_problem(post(api, [echo(0, "k"), echo(1), echo(2)]), 503, "database-away")

    assert row_count(database) == 1
    assert post(api, [echo(0, "k"), echo(1), echo(2)]).status_code == 202


def test_a_known_task_that_is_gone_meanwhile_does_not_deny_the_new_ones(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = post(api, [echo(0, "k")]).json["ids"][0]

    def commit_and_remove_the_known(connection: Connection) -> None:
        connection.commit()
        database.execute("delete from tally.task where id = %s", (known,))

    lose_first_reply(monkeypatch, commit_and_remove_the_known)

    answer = post(api, [echo(0, "k"), echo(1)])

    assert (answer.status_code, answer.json["ids"][0]) == (202, known)
    assert row_count(database) == 1


def test_a_commit_that_does_not_end_leaves_it_unknown_in_time(api: Api, database: Database) -> None:
    on_commit(database, "new.input->>'n' = '1'", "set local statement_timeout = 0; perform pg_sleep(60);")

    assert_problem(post_aside(api, [echo(0), echo(1)]).result(20), 504, "outcome-unknown")


def test_a_session_that_was_lost_while_idle_is_renewed_without_a_word(api: Api, database: Database) -> None:
    assert post(api, [echo(0)]).status_code == 202
    idle = "from pg_stat_activity where datname = current_database() and application_name like 'tally-web%'"
    database.execute(f"select pg_terminate_backend(pid) {idle}")
    wait_until(lambda: database.value(f"select count(*) {idle}") == 0, "the sessions are gone")

    assert post(api, [echo(1)]).status_code == 202


def test_who_waits_for_another_request_is_refused_in_time_and_makes_no_row_later(api: Api, database: Database) -> None:
    with queue_locked(database):
        answers = [post_aside(api, [echo(n)]) for n in range(3)]

        for answer in answers:
            assert_problem(answer.result(20), 503, "database-away")

    assert post(api, [echo(9)]).status_code == 202
    assert database.rows("select input ->> 'n' from tally.task") == [("9",)]


def test_a_database_that_is_away_is_503_then_at_once_and_served_again(
    api: Api, database: Database, server: TestServer
) -> None:
    assert post(api, [echo(0)]).status_code == 202
    server.stop()
    try:
        assert_problem(post(api, [echo(1), echo(2)]), 503, "database-away")
        wait_until(lambda: api.admission.availability.is_away, "the database is found away")
        assert_problem(post(api, [echo(3)]), 503, "database-away")
    finally:
        server.bring_up()

    wait_until(lambda: post(api, [echo(4)]).status_code == 202, "bulk submits are taken again", 10)
    assert database.rows("select input ->> 'n' from tally.task order by position") == [("0",), ("4",)]


NUMBER = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_the_first_task_that_does_not_fit_its_kind_is_named_and_none_is_made(api: Api, database: Database) -> None:
    publish(database.connect("test-publisher"), input_schema=NUMBER)
    tasks = [echo(n) for n in range(1000)]
    tasks[617] = {"kind": "echo", "input": {"n": "617"}}
    tasks[900] = {"kind": "echo", "input": {}}

    assert_names(post(api, tasks), 422, "invalid-input", "/tasks/617/input/n", 617)

    assert row_count(database) == 0
    assert post(api, tasks[:617]).status_code == 202


def test_what_is_published_between_two_requests_holds_for_the_second(api: Api, database: Database) -> None:
    publisher = database.connect("test-publisher")
    tasks: list[object] = [echo(0), {"kind": "echo", "input": {"n": "1"}}]
    assert post(api, tasks).status_code == 202

    publish(publisher, input_schema=NUMBER)
    assert_names(post(api, tasks), 422, "invalid-input", "/tasks/1/input/n", 1)

    publish(publisher, input_schema=None)
    assert post(api, tasks).status_code == 202
    assert row_count(database) == 4


def test_a_request_that_was_checked_by_an_older_schema_is_not_admitted(api: Api, database: Database) -> None:
    with queue_locked(database):
        first = post_aside(api, [echo(0)])
        await_lock_waits(database)
        unfit = post_aside(api, [echo(0), {"kind": "echo", "input": {"n": "1"}}])
        fits = post_aside(api, [echo(1), echo(2)])
        wait_until(lambda: api.bulk._thread._work_queue.qsize() == 2, "two requests wait")
        publish(database.connect("test-publisher"), input_schema=NUMBER, queue="echoes")

    assert first.result(20).status_code == 202
    assert_names(unfit.result(20), 422, "invalid-input", "/tasks/1/input/n", 1)
    ids = fits.result(20).json["ids"]
    assert {api.get(task).json["queue"] for task in ids} == {"echoes"}
    assert row_count(database) == 3


def test_the_tasks_of_one_request_go_to_one_queue(api: Api, database: Database) -> None:
    publisher = database.connect("test-publisher")
    publish(publisher, "mail", queue="mails")
    publish(publisher, "letter", queue="mails")
    mail: dict[str, Any] = {"kind": "mail", "input": {}}
    letter: dict[str, Any] = {"kind": "letter", "input": {}}

    problem = assert_names(post(api, [mail, letter, echo(0), mail]), 422, "invalid-input", "/tasks/2/kind", 2)

    assert "'default'" in problem["detail"]
    assert "'mails'" in problem["detail"]
    assert row_count(database) == 0
    ids = post(api, [mail, letter]).json["ids"]
    assert [api.get(task).json["queue"] for task in ids] == ["mails", "mails"]


def test_a_queue_that_is_gone_because_its_kinds_moved_refuses_nobody_and_a_missing_one_is_said(
    api: Api, database: Database
) -> None:
    publisher = database.connect("test-publisher")
    publish(publisher, queue="old")
    assert post(api, [echo(0)]).status_code == 202
    publish(publisher, queue="new")
    database.execute("delete from tally.queue where name = 'old'")

    ids = post(api, [echo(1)]).json["ids"]

    assert api.get(ids[0]).json["queue"] == "new"
    database.execute("delete from tally.queue where name = 'new'")
    assert_names(post(api, [echo(2)]), 503, "database-away", None, None)
    assert row_count(database) == 2


def test_a_row_that_the_database_refuses_is_named_behind_a_reading_of_the_kinds(api: Api, database: Database) -> None:
    publish(database.connect("test-publisher"), queue="echoes")
    on_insert(database, "new.input->>'n' = '5'", "raise exception 'not 5';")

    problem = assert_names(post(api, [echo(n) for n in range(9)]), 422, "invalid-input", "/tasks/5", 5)

    assert problem["detail"] == "not 5"
    assert row_count(database) == 0


def test_a_commit_that_was_done_in_another_queue_is_found_done(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(database.connect("test-publisher"), queue="echoes")
    lose_first_reply(monkeypatch, psycopg.Connection.commit)

    assert post(api, [echo(n) for n in range(3)]).status_code == 202

    assert database.value("select count(*) from tally.task where queue = 'echoes'") == 3


def test_kinds_that_never_stand_still_are_given_up_without_a_row(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = database.connect("test-publisher")
    api.admission.kinds.learn(api.store.kinds(monotonic() + 1))
    published = [publish(publisher)]

    def publish_again(connection: Connection, *rest: Any) -> Any:
        rows = read_kinds(connection, *rest)
        published.append(publish(publisher, max_attempts=3 + len(published)))
        return rows

    monkeypatch.setattr("falcon_app.bulk_writing.read_kinds", publish_again)

    assert_names(post(api, [echo(0)]), 503, "database-away", None, None)

    assert len(published) == MOST_READINGS + 1
    assert row_count(database) == 0

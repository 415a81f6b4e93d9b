"""Methods and paths: what is where, and what is nowhere."""

import re
from pathlib import Path

from falcon_app.errors import PROBLEMS
from tests.api.conftest import JSON, Api, assert_problem, row_count
from tests.support.database import Database

ROUTES = {"/tasks": {"POST", "OPTIONS"}, "/tasks/1": {"GET", "HEAD", "OPTIONS"}, "/tasks/1/cancel": {"POST", "OPTIONS"}}


def test_a_wrong_method_is_405_and_told_the_right_ones(api: Api) -> None:
    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE")
    for path, method in ((path, method) for path in ROUTES for method in methods if method not in ROUTES[path]):
        answer = api.public.simulate_request(method, path)

        assert answer.status_code == 405, method
        assert set(answer.headers["allow"].split(", ")) == ROUTES[path]
        if method != "HEAD":
            assert_problem(answer, 405, "method-not-allowed")


def test_options_tells_the_methods(api: Api) -> None:
    for path, methods in ROUTES.items():
        answer = api.public.simulate_options(path)

        assert (answer.status_code, answer.content) == (200, b"")
        assert set(answer.headers["allow"].split(", ")) | {"OPTIONS"} == methods


def test_everything_else_is_404(api: Api, database: Database) -> None:
    paths = ["/", "/tasks/", "/task", "/tasks/1/", "/tasks/1/cancel/", "/tasks/1/results", "/tasks/%2F", "/TASKS"]
    for path in (*paths, "/healthz", "/readyz", "/tasks/1/cancel/x", "/tasks/%ff", "/%ff", "/tasks/%2e"):
        for method in ("GET", "POST", "DELETE"):
            answer = api.public.simulate_request(method, path, body=b"{}", headers=JSON)
            assert_problem(answer, 404, "not-found")

    assert row_count(database) == 0


def test_the_admin_listener_has_nothing_else(api: Api) -> None:
    assert_problem(api.admin.simulate_post("/tasks", body=b"{}"), 404, "not-found")
    assert_problem(api.admin.simulate_get("/tasks/1"), 404, "not-found")


def test_a_query_changes_nothing(api: Api) -> None:
    task = api.post({"text": "x"}).json["id"]

    for query in ("%ff=%fe", "a=1&a=2", "%", "&&="):
        assert api.public.simulate_get(f"/tasks/{task}", query_string=query).status_code == 200


def test_headers_that_are_not_utf8_change_nothing(api: Api) -> None:
    answer = api.public.simulate_get("/tasks/1", headers={"X-Name": "\xff\xfe", "Accept": "text/html;q=x"})

    assert_problem(answer, 404, "not-found")


def test_health_is_green_while_admission_lives(api: Api) -> None:
    assert api.admin.simulate_get("/healthz").json == {"status": "ok"}

    api.admission.stop(10)

    assert_problem(api.admin.simulate_get("/healthz"), 503, "unhealthy")


def test_readiness_reports_queues_and_dispatchers(api: Api) -> None:
    api.post({"text": "x"})

    answer = api.admin.simulate_get("/readyz")

    assert answer.status_code == 200
    assert answer.json["status"] == "ready"
    assert answer.json["queues"] == [{"queue": "default", "max_open": 10_000, "open": 1, "paused": False}]
    assert answer.json["dispatchers"] == []
    assert answer.json["notification_queue_usage"] == 0


def test_readiness_is_red_when_the_schema_is_later_than_known(api: Api, database: Database) -> None:
    database.execute("insert into tally.migration (version, name) values (9999, 'later')")

    assert_problem(api.admin.simulate_get("/readyz"), 503, "unhealthy")


def test_every_problem_code_is_documented_with_its_status() -> None:
    text = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")

    documented = {
        code: int(status) for code, status in re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", text, re.MULTILINE)
    }

    assert documented == {code: status for code, (status, _) in PROBLEMS.items()}

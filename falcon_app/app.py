"""The two WSGI applications, the public and the admin one; all they need is passed in."""

import logging
from time import monotonic
from typing import TypeAlias

import falcon
from falcon.constants import COMBINED_METHODS

from falcon_app.admission import Admission
from falcon_app.bulk import TaskBatch
from falcon_app.bulk_admission import BulkAdmission
from falcon_app.channels import DUE_SINCE
from falcon_app.checking import Checking
from falcon_app.errors import MEDIA_TYPE, PROBLEMS, RETRY_AFTER_SECONDS, Problem, problem_body, problem_of
from falcon_app.health import Health, Readiness
from falcon_app.store import Store
from falcon_app.tasks import Task, TaskCancel, TaskId, TaskRetry, Tasks
from sql.errors import Misconfigured, TallyError
from sql.migrate import SchemaTooNew
from sql.settings import Settings

log = logging.getLogger("tally.web")

App: TypeAlias = falcon.App[falcon.Request, falcon.Response]


def create_app(admission: Admission, bulk: BulkAdmission, store: Store, settings: Settings) -> App:
    """Return the public API."""
    app = _bare_app(settings)
    app.router_options.converters["task"] = TaskId
    checking = Checking(admission.kinds, store)
    app.add_route("/tasks", Tasks(checking, admission, settings))
    app.add_route("/tasks/batch", TaskBatch(checking, bulk, settings))
    app.add_route("/tasks/{task:task}", Task(store))
    app.add_route("/tasks/{task:task}/cancel", TaskCancel(store))
    app.add_route("/tasks/{task:task}/retry", TaskRetry(checking, admission, store))
    return app


def create_admin_app(admission: Admission, store: Store, settings: Settings) -> App:
    """Return what the admin listener serves."""
    app = _bare_app(settings)
    app.add_route("/healthz", Health(admission))
    app.add_route("/readyz", Readiness(store))
    return app


class _Deadline:
    """Gives each request the one moment by which everything done for it ends.

    Reckoned from when it could have been answered, had a thread been free: waiting for one is part of its time.
    """

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.request.total_seconds()

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        req.context.deadline = req.env.get(DUE_SINCE, monotonic()) + self._seconds
        if req.method not in COMBINED_METHODS:
            raise Problem("not-implemented", "this method is unknown here")


def _bare_app(settings: Settings) -> App:
    app: App = falcon.App(middleware=[_Deadline(settings)])
    # Later handlers are asked first.
    app.add_error_handler(Exception, _on_fault)
    app.add_error_handler(falcon.HTTPError, _on_http_error)
    app.add_error_handler(TallyError, _on_tally_error)
    app.add_error_handler(SchemaTooNew, _on_later_schema)
    app.add_error_handler(Problem, _on_problem)
    return app


def _on_problem(_req: falcon.Request, resp: falcon.Response, problem: Problem, _params: dict[str, object]) -> None:
    status, _ = PROBLEMS[problem.code]
    resp.status = falcon.code_to_http_status(status)
    resp.content_type = MEDIA_TYPE
    resp.data = problem_body(problem)
    if status == 503:
        resp.set_header("Retry-After", str(RETRY_AFTER_SECONDS))


def _on_tally_error(req: falcon.Request, resp: falcon.Response, error: TallyError, params: dict[str, object]) -> None:
    if isinstance(error, Misconfigured):
        log.error("database.misconfigured reason=%s", error)
    _on_problem(req, resp, problem_of(error), params)


def _on_later_schema(
    req: falcon.Request, resp: falcon.Response, error: SchemaTooNew, params: dict[str, object]
) -> None:
    _on_problem(req, resp, Problem("unhealthy", str(error)), params)


def _on_http_error(
    req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, params: dict[str, object]
) -> None:
    """Answer what falcon itself refuses; 405 keeps its Allow."""
    code = {404: "not-found", 405: "method-not-allowed", 413: "body-too-large"}.get(error.status_code, "bad-request")
    resp.set_headers(error.headers or {})
    _on_problem(req, resp, Problem(code, error.description or f"{req.method} {req.path}"), params)


def _on_fault(req: falcon.Request, resp: falcon.Response, error: Exception, params: dict[str, object]) -> None:
    log.error("request.failed method=%s path=%r", req.method, req.path, exc_info=error)
    _on_problem(req, resp, Problem("internal-error", "This fault was logged."), params)

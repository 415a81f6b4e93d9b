"""The resource of the public API that takes many tasks in one request."""

import falcon

from falcon_app.bulk_admission import BulkAdmission
from falcon_app.bulk_checks import TaskRefused
from falcon_app.checking import Checking
from falcon_app.errors import KeyInProgress, KeyReused, OtherQueue, Problem, UnfitInput, problem_of
from falcon_app.payloads import read_body, read_tasks
from sql.settings import Settings


class TaskBatch:
    """`/tasks/batch`"""

    def __init__(self, checking: Checking, bulk: BulkAdmission, settings: Settings) -> None:
        self._checking = checking
        self._bulk = bulk
        self._settings = settings

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        if req.get_header("Idempotency-Key") is not None:
            # Left unread it would promise what is not kept.
            raise Problem(
                "bad-request", "expected no Idempotency-Key: a task of many has an idempotency_key of its own"
            )
        body = read_body(req, self._settings.max_body_bytes)
        tasks = read_tasks(body, self._settings.max_depth, self._settings.max_body_bytes)
        deadline = req.context.deadline
        try:
            ids = self._bulk.submit(tasks, self._checking.many(tasks, deadline), deadline)
        except TaskRefused as refused:
            raise _problem_of(refused) from None
        resp.status = falcon.HTTP_202
        resp.content_type = falcon.MEDIA_JSON
        resp.data = b'{"ids":[%s]}' % ",".join(map(str, ids)).encode("ascii")


def _problem_of(refused: TaskRefused) -> Problem:
    match refused.error:
        case KeyReused() | KeyInProgress():
            place = "/idempotency_key"
        case OtherQueue():
            place = "/kind"
        case UnfitInput(pointer=pointer):
            place = f"/input{pointer}"
        case _:
            place = ""
    problem = problem_of(refused.error)
    problem.pointer = f"/tasks/{refused.index}{place}"
    problem.index = refused.index
    return problem

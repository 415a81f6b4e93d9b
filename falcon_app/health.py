"""The admin listener's resources: is this process sound, and is the service ready?"""

import falcon

from falcon_app.admission import Admission
from falcon_app.errors import Problem
from falcon_app.store import Store


class Health:
    """`/healthz`: this process alone. Red means: replace it."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        if not self._admission.is_alive:
            raise Problem("unhealthy", "the admission thread has ended")
        resp.content_type = falcon.MEDIA_JSON
        resp.data = b'{"status":"ok"}'

    on_head = on_get


class Readiness:
    """`/readyz`: can the service do its work now? With what the database says of dispatchers and queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        report = self._store.readiness(req.context.deadline)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = f'{{"status":"ready",{report[1:]}'.encode()

    on_head = on_get

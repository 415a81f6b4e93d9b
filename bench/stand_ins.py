"""`python -m bench.stand_ins nothing | alone`: the very same web process, with another admission in its place.

`nothing` answers every submit with the same document: what the listener, Falcon and the checking of a body
leave to be reached. `alone` writes each request's row by itself, with a NOTIFY and a COMMIT of its own, on a connection
of the request's thread: how it is done without batches.
"""

import sys
from threading import local
from typing import Final

from bench.stage import MINUTE, text
from falcon_app import __main__ as web
from falcon_app.admission import Admission
from falcon_app.payloads import Payload
from sql.connect import Connection, connect
from sql.process import run_to_the_end
from sql.settings import Settings

DOCUMENT: Final = """{"id": 7, "kind": "noop", "queue": "default", "state": "QUEUED", "cancel_requested": false, \
"attempt": 0, "input": {}, "result": null, "error": null, "created_at": "2026-01-31T12:00:00.000000Z", \
"started_at": null, "finished_at": null}"""


class Nothing(Admission):
    """Admits nothing, and says it did."""

    def submit(self, *_: object, **__: object) -> str:
        return DOCUMENT


class Alone(Admission):
    """One transaction and one NOTIFY for each request."""

    def __init__(self, url: str, settings: Settings, *rest: object) -> None:
        super().__init__(url, settings, *rest)  # type: ignore[arg-type] # as it came
        self._url = url
        self._local = local()

    def submit(self, payload: Payload, *_: object, **__: object) -> str:
        self._connection().execute(text("alone"), {"kind": payload.kind, "input": payload.input})
        return DOCUMENT

    def _connection(self) -> Connection:
        if not hasattr(self._local, "connection"):
            self._local.connection = connect(self._url, name="alone", connect_timeout=MINUTE, statement_timeout=MINUTE)
        connection: Connection = self._local.connection
        return connection


if __name__ == "__main__":
    vars(web)["Admission"] = {"nothing": Nothing, "alone": Alone}[sys.argv.pop(1)]
    run_to_the_end(web.main)

"""`python -m falcon_app`: settings, logging, the applications, their listeners; then it waits for its end.

The main thread only ever waits on its inbox, into which signals and ending threads put a word.
Exit status: 0 every request it took was answered, 1 some were not or a fault, 2 bad configuration.
"""

import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from enum import Enum
from queue import Empty, SimpleQueue
from time import monotonic

from falcon_app.admission import Admission
from falcon_app.app import create_admin_app, create_app
from falcon_app.bulk_admission import BulkAdmission
from falcon_app.listener import Listener, allowed_connections, bind
from falcon_app.settings import WebSettings, web_settings
from falcon_app.store import Store
from sql.errors import TallyError
from sql.log import start_log
from sql.process import next_word, run_to_the_end
from sql.ready import await_schema
from sql.settings import BadSettings, Settings
from sql.transactions import connect

ADMIN_THREADS = 2
ADMIN_CONNECTIONS = 64

log = logging.getLogger("tally.web")


class Word(Enum):
    """What the inbox holds."""

    SIGNAL = "signal"
    READY = "ready"
    ENDED = "ended"


Inbox = SimpleQueue[Word]


def main() -> int:
    try:
        settings = web_settings(sys.argv[1:], os.environ)
    except BadSettings as error:
        print(*error.problems, sep="\n", file=sys.stderr)
        return 2
    start_log(settings.shared.log_level)
    inbox: Inbox = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: inbox.put(Word.SIGNAL))
    url = settings.shared.database_url or _embedded_url()
    status = _await_schema(url, settings.shared, inbox)
    return serve(url, settings, inbox) if status is None else status


def _embedded_url() -> str:
    from sql import embedded  # noqa: PLC0415 - only an installation that uses it needs the wheel

    return embedded.url()


def _await_schema(url: str, settings: Settings, inbox: Inbox) -> int | None:
    """Return None once the schema fits, else the exit status. A signal ends the wait at once, whatever it hangs in."""
    stopped = threading.Event()

    def run() -> None:
        word = Word.ENDED
        try:
            await_schema(lambda: connect(url, "tally-web start", settings.connect), settings, stopped.wait)
            word = Word.READY
        except TallyError as error:
            print(f"python -m falcon_app: {error}", file=sys.stderr)
        finally:
            inbox.put(word)

    threading.Thread(target=run, name="start", daemon=True).start()
    match next_word(inbox):
        case Word.READY:
            return None
        case Word.SIGNAL:
            stopped.set()
            return 0
        case Word.ENDED:
            return 1


def serve(url: str, settings: WebSettings, inbox: Inbox) -> int:
    """Serve until a signal, drain, and return the exit status."""
    shared = settings.shared
    max_connections = allowed_connections(shared.max_connections)
    try:
        sockets = [bind(settings.listen), bind(settings.admin)]
    except OSError as error:
        print(f"python -m falcon_app: cannot listen: {error}", file=sys.stderr)
        return 1

    def on_end() -> None:
        inbox.put(Word.ENDED)

    admission = Admission(url, shared, on_end)
    bulk = BulkAdmission(url, shared, admission.availability, admission.kinds)
    store = Store(url, shared, admission.availability)
    public = Listener(
        "web",
        create_app(admission, bulk, store, shared),
        sockets[0],
        shared,
        threads=shared.request_threads,
        max_connections=max_connections,
        on_end=on_end,
    )
    admin = Listener(
        "admin",
        create_admin_app(admission, store, shared),
        sockets[1],
        shared,
        threads=ADMIN_THREADS,
        max_connections=ADMIN_CONNECTIONS,
        on_end=on_end,
    )
    addresses = [listener.address for listener in (public, admin)]
    store.open()
    for part in (admission, public, admin):
        part.start()
    print(f"ready web listen={addresses[0]} admin={addresses[1]}", flush=True)

    fault = next_word(inbox) is Word.ENDED
    if fault:
        log.error("web.fault reason=a thread ended that should not have")
    return _stop(settings, inbox, admission, bulk, store, public, admin) or int(fault)


def _stop(
    settings: WebSettings,
    inbox: Inbox,
    admission: Admission,
    bulk: BulkAdmission,
    store: Store,
    public: Listener,
    admin: Listener,
) -> int:
    """Answer what was asked and end every part; the last part of the drain's time is kept for the ending."""
    end_by = monotonic() + settings.shared.drain.total_seconds()
    log.info("web.draining")
    public.drain(end_by - settings.shared.drain_reserve.total_seconds())
    while public.is_alive:
        with suppress(Empty):
            # The second signal ends the drain; a listener that ends puts its word here too.
            if inbox.get(timeout=0.05) is Word.SIGNAL:
                end_by = monotonic()
                public.drain(end_by)
    admin.drain(monotonic())

    def left() -> float:
        return min(1.0, max(0.1, end_by - monotonic()))

    # Nobody is waiting for these any more: one that hangs, in connecting perhaps, ends with the process.
    bulk.stop()
    admission.stop(left())
    admin.join(left())
    store.close(left())
    log.info("web.stopped unanswered=%d", public.unanswered)
    return int(public.unanswered > 0)


if __name__ == "__main__":
    run_to_the_end(main)

"""A COMMIT held back on the server, for as long as a test needs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from tests.support.faults import AT_COMMIT, insert_fault
from tests.support.service import Service, Submitted
from tests.support.waiting import wait_until

GATE_KEY = 4711
WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


@contextmanager
def committing(service: Service) -> Iterator[list[Submitted]]:
    """Submit, and hold the server's COMMIT back until the end; the list has the answer in it then."""
    holder = service.database.connect("test-holder")
    holder.execute("select pg_advisory_lock(%s)", (GATE_KEY,))
    answers: list[Submitted] = []
    act = f"set local statement_timeout = 0; perform pg_advisory_xact_lock({GATE_KEY})"
    with insert_fault(service.database, AT_COMMIT, act):
        client = threading.Thread(target=lambda: answers.append(service.submit(bad=True)))
        client.start()
        wait_until(lambda: service.database.value(WAITING) == 1, "COMMIT is under way")
        yield answers
        with suppress(psycopg.OperationalError):
            # Gone with the server, if that was killed.
            holder.execute("select pg_advisory_unlock_all()")
        client.join(30)
        assert not client.is_alive()

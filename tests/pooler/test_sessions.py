"""A server connection is somebody else's after each transaction: nothing of a web process stays in it."""

from typing import Any, cast

import psycopg
import pytest
from psycopg.abc import QueryNoTemplate

from tests.pooler.bouncer import Bouncer
from tests.support.database import Database
from tests.support.faults import AFTER_INSERT, BEFORE_INSERT, insert_fault
from tests.support.service import Service

pytestmark = pytest.mark.scale

SETTINGS = "select name, setting from pg_settings where not starts_with(name, 'plpgsql.')"
"""Those of plpgsql are there once a session has run any."""
LEFT_BEHIND = """
    select
        (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),
        (select count(*) from pg_prepared_statements),
        (select count(*) from pg_cursors where name <> ''),
        (select count(*) from pg_listening_channels()),
        pg_my_temp_schema()::int
"""


def asked_of(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Ask as a stranger who says nothing of the session but a name.

    Without one, PgBouncer 1.18 shows the name of whoever had the session before; all else is put back.
    """
    with psycopg.connect(url, autocommit=True, application_name="stranger") as connection:
        return connection.execute(cast(QueryNoTemplate, statement)).fetchall()


def test_nothing_of_a_web_is_left_in_a_session_for_the_pool_s_next_client(
    service: Service, bouncer: Bouncer, database: Database
) -> None:
    """Every setting the server has, and every other state of a session, after answers of all kinds."""
    database.execute(f"alter database {database.name} set statement_timeout = '7s'")
    database.execute(f"alter database {database.name} set default_transaction_isolation = 'serializable'")
    bouncer.write_settings(default_pool_size="1")
    bouncer.console("reload")
    service.start()
    answer_in_every_way(service, database)

    ((pid,),) = asked_of(bouncer.url, "select pg_backend_pid()")
    settings = dict(asked_of(bouncer.url, SETTINGS))
    left = asked_of(bouncer.url, LEFT_BEHIND)

    assert [server["remote_pid"] for server in bouncer.console("show servers")] == [pid], "it is the web's session"
    assert settings == dict(asked_of(database.url, SETTINGS))
    assert (settings["statement_timeout"], settings["lock_timeout"]) == ("7000", "0")
    assert settings["default_transaction_isolation"] == "serializable"
    assert left == [(0, 0, 0, 0, 0)]
    service.reconcile()


def answer_in_every_way(service: Service, database: Database) -> None:
    """Ask for all that a web process does with its sessions, well and badly."""
    done = service.accepted()
    service.await_all()
    assert [service.submit(key="k").status, service.submit(key="k").code] == [202, "key-reused"]
    holder = database.connect("test-holder")
    with holder.transaction(force_rollback=True):
        holder.execute(
            "insert into tally.task (token, queue, kind, input, idempotency_key, digest)"
            " values (gen_random_uuid(), 'default', 'echo', '{}', 'held', 'x')"
        )
        assert service.submit(key="held").code == "key-in-progress"
    for moment in (BEFORE_INSERT, AFTER_INSERT):
        with insert_fault(database, moment, "raise exception 'refused'"):
            assert service.submit(bad=True).code == "invalid-input"
    service.await_all()
    assert [service.api.cancel(task).status for task in (done, 4711)] == [409, 404]
    database.execute("update tally.queue set max_open = 1, paused_at = clock_timestamp()")
    queued = service.accepted()
    assert service.submit().code == "overloaded"
    assert service.api.cancel(queued).status == 202
    assert [service.read(done), service.read(4711), service.probe("/readyz")] == [200, 404, 200]


def test_a_transaction_brings_its_own_timeouts_and_isolation_through_the_pooler(
    service: Service, bouncer: Bouncer, database: Database
) -> None:
    database.execute(f"alter database {database.name} set statement_timeout = '7s'")
    database.execute(f"alter database {database.name} set default_transaction_isolation = 'serializable'")
    service.start(env={"TALLY_STATEMENT_SECONDS": "1"})
    names = ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_isolation")
    seen = " || ' ' || ".join(f"current_setting('{name}')" for name in names)

    with insert_fault(database, BEFORE_INSERT, f"raise exception using message = {seen}"):
        refused = service.api.submit("echo", {"bad": True})

    assert (refused.status, refused.json()["detail"]) == (422, "1s 1s read committed")
    assert asked_of(bouncer.url, "show statement_timeout") == [("7s",)]

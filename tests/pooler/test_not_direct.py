"""Dispatchers and migrations led to a pooler by mistake: they refuse, before anything of theirs is left in it."""

import psycopg
import pytest

from sql.errors import NotDirect
from tests.pooler.bouncer import Bouncer
from tests.support.database import Database
from tests.support.program import RunDispatcher, RunProgram
from tests.support.proxy import MakeProxy
from tests.support.service import Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scale

ONLY_THE_POOLER = {"DATABASE_DIRECT_URL": None}
SESSION = "select pg_backend_pid(), name, setting from pg_settings"


def refused(output: str, program: str) -> bool:
    return output.startswith(f"python -m {program}: {NotDirect()}\n")


@pytest.mark.parametrize("pool_mode", ["transaction", "session", "statement"])
def test_a_dispatcher_refuses_to_run_behind_a_pooler(
    run_dispatcher: RunDispatcher, bouncer: Bouncer, database: Database, pool_mode: str
) -> None:
    bouncer.write_settings(pool_mode=pool_mode)
    bouncer.console("reload")

    dispatcher = run_dispatcher(env=ONLY_THE_POOLER, ready=False)

    assert dispatcher.wait() == 2
    assert refused(dispatcher.output, "dispatcher"), dispatcher.output
    assert database.value("select count(*) from tally.dispatcher") == 0


@pytest.mark.parametrize("command", ["migrate", "status", "queue default --max-open 1"])
def test_no_database_command_runs_behind_a_pooler(
    run_program: RunProgram, bouncer: Bouncer, database: Database, command: str
) -> None:
    program = run_program("sql", *command.split(), env=ONLY_THE_POOLER, ready=False)

    assert program.wait() == 2
    assert refused(program.output, f"sql {command.split(maxsplit=1)[0]}"), program.output
    assert database.value("select max_open from tally.queue") == 10_000


def test_with_both_addresses_a_database_command_goes_to_the_server_itself(run_program: RunProgram) -> None:
    assert run_program("sql", "status", ready=False).wait() == 0


def test_who_is_refused_leaves_no_setting_in_the_pool(
    run_dispatcher: RunDispatcher, bouncer: Bouncer, database: Database
) -> None:
    bouncer.write_settings(default_pool_size="1")
    bouncer.console("reload")
    with psycopg.connect(bouncer.url, autocommit=True, application_name="stranger") as stranger:
        before = stranger.execute(SESSION).fetchall()

    assert run_dispatcher(env=ONLY_THE_POOLER, ready=False).wait() == 2

    with psycopg.connect(bouncer.url, autocommit=True, application_name="stranger") as stranger:
        assert stranger.execute(SESSION).fetchall() == before


def test_a_running_dispatcher_that_is_led_to_a_pooler_waits_for_the_server_itself(
    service: Service, bouncer: Bouncer, database: Database, proxy: MakeProxy
) -> None:
    """As when a name comes to mean another address while the connections are lost."""
    way = proxy("127.0.0.1", database.server.port)
    service.start(env={"DATABASE_DIRECT_URL": way.url_for(database.url)})
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")

    way._target = ("127.0.0.1", bouncer.port)
    way.cut()
    service.dispatcher.wait_for("session.failed error=DATABASE_DIRECT_URL")
    queued = service.accepted()
    service.gate.touch()
    service.dispatcher.wait_for("write.failed")
    assert (service.state(running), service.state(queued)) == ("RUNNING", "QUEUED")
    way._target = ("127.0.0.1", database.server.port)
    way.cut()

    service.await_all()
    assert service.row(running)[0] == "SUCCEEDED"
    wait_until(lambda: service.ready()["dispatchers"][0]["trouble"] is None, "it has no trouble any more")
    service.reconcile()
    assert service.dispatcher.stop() == 0


def test_a_direct_session_through_a_plain_forwarder_is_direct(
    run_dispatcher: RunDispatcher, database: Database, proxy: MakeProxy
) -> None:
    way = proxy("127.0.0.1", database.server.port)

    dispatcher = run_dispatcher(env={"DATABASE_DIRECT_URL": way.url_for(database.url)})

    assert dispatcher.stop() == 0

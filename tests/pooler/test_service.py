"""Web processes behind PgBouncer in transaction mode: everything they do, over few server connections."""

from itertools import cycle

import pytest

from tests.pooler.bouncer import Bouncer
from tests.support.http import Client
from tests.support.program import RunProgram
from tests.support.service import Service, at_the_same_time
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scale

PATIENT: dict[str, str | None] = {"TALLY_REQUEST_SECONDS": "10", "TALLY_STATEMENT_SECONDS": "8"}
"""Where nobody is to be refused, however busy the machine is."""


def test_the_whole_life_of_tasks_behind_the_pooler(service: Service, bouncer: Bouncer) -> None:
    """With nothing set in PgBouncer to let start-up parameters pass."""
    config = {row["key"]: row["value"] for row in bouncer.console("show config")}
    assert config["ignore_startup_parameters"] == ""
    service.start("--slots", "1")

    text = service.submit_text("Go one")
    service.await_all()
    first = service.submit(marker="once", key="k")
    again = service.submit(marker="once", key="k")
    other = service.submit(key="k")
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")
    queued = service.accepted("gate")
    canceled = [service.api.cancel(task).status for task in (queued, running, first.task or 0, 4711)]
    service.database.execute("update tally.queue set max_open = 1")
    refused = service.submit()

    assert text.task is not None
    assert service.statistics(text.task) == ("SUCCEEDED", 2, 6, 6, False)
    assert (first.status, again.status, again.task) == (202, 202, first.task)
    assert (other.status, other.code) == (422, "key-reused")
    assert canceled == [202, 202, 409, 404]
    assert (refused.status, refused.code) == (503, "overloaded")
    assert [service.read(task) for task in (text.task, running, 4711)] == [200, 200, 404]
    assert [each["pid"] for each in service.ready()["dispatchers"]] == [service.dispatcher.pid]
    clients = [each for each in bouncer.console("show clients") if each["database"] == bouncer.database]
    assert {each["application_name"] for each in clients} == {"tally-web", "tally-web admission"}
    service.gate.touch()
    service.await_all()
    assert (service.state(queued), service.state(running)) == ("CANCELED", "CANCELED")
    service.reconcile()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)


def test_many_requests_of_several_webs_share_few_server_connections(
    service: Service, bouncer: Bouncer, run_program: RunProgram
) -> None:
    logged = len(service.database.server.log)
    service.start(env=PATIENT)
    webs = [service.web, run_program("falcon_app", env=PATIENT), run_program("falcon_app", env=PATIENT)]
    known = service.accepted()
    unexpected: list[tuple[str, int]] = []
    asked = cycle(webs)

    def expect(what: str, status: int, *allowed: int) -> None:
        if status not in allowed:
            unexpected.append((what, status))

    def client() -> None:
        for number in range(25):
            web = next(asked)
            entry = service.submit(web=web, key=f"k{number}" if number % 3 == 0 else None, marker=marker(number))
            expect("submit", entry.status, 202)
            expect("cancel", Client(web.address).cancel(entry.task or 0).status, 202, 409)
            expect("read", Client(web.address).get(f"/tasks/{known}").status, 200)
            expect("ready", Client(web.admin).get("/readyz").status, 200)

    def marker(number: int) -> str | None:
        # The same key comes with the same body, from whichever client and through whichever web.
        return f"keyed {number}" if number % 3 == 0 else None

    at_the_same_time(*[client] * 12)

    assert unexpected == []
    (pool,) = (each for each in bouncer.console("show pools") if each["database"] == bouncer.database)
    assert pool["sv_active"] + pool["sv_idle"] + pool["sv_used"] <= 4
    assert 4 < pool["cl_active"] + pool["cl_waiting"] <= 15, "more clients than server connections, and no more"
    assert "prepared statement" not in service.database.server.log[logged:]
    service.await_all(60)
    service.reconcile()


def test_reads_go_on_while_the_admission_of_every_web_waits_for_its_turn(
    service: Service, run_program: RunProgram
) -> None:
    """Each waits in a transaction, with a server connection: one more than there are webs is enough."""
    service.start(env=PATIENT)
    webs = [service.web, run_program("falcon_app", env=PATIENT), run_program("falcon_app", env=PATIENT)]
    known = service.accepted()
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    holder = service.database.connect("test-holder")

    def read_behind_them() -> list[int]:
        wait_until(lambda: service.database.value(waiting) == 3, "every web waits for the queue")
        statuses = [Client(web.address).get(f"/tasks/{known}").status for web in webs]
        holder.execute("select pg_advisory_unlock_all()")
        return statuses

    holder.execute("select pg_advisory_lock(tally.queue_lock_key('default'))")
    *submitted, reads = at_the_same_time(
        *[lambda web=web: service.submit(web=web).status for web in webs], read_behind_them
    )

    assert (submitted, reads) == ([202] * 3, [200] * 3)
    service.await_all()
    service.reconcile()

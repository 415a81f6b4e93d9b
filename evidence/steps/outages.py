"""PostgreSQL away for a while, and both programs outlive it: stopped and started again, or read-only."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Final, Literal

from evidence.client import Client
from evidence.deadline import AT_ONCE_SECONDS, in_time
from evidence.programs import Program
from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within
from evidence.together import at_once

BACK_SECONDS: Final = 5


def back(stage: Stage, web: Program) -> None:
    """Wait, with nobody's help, until a submit is accepted and readiness is green."""
    api, admin = stage.client(web), stage.client(web.admin)
    stage.wait_until(lambda: api.submit("echo", label="back").status == 202, "a submit is accepted", every=0.1)
    stage.wait_until(lambda: admin.get("/readyz", label="ready again").status == 200, "it is ready", every=0.1)


def outlived(record: Record, ended: float) -> Iterator[Claim]:
    """Claim what must be seen after an outage that ended at this time."""
    accepted = min((each.ended for each in record.answers("back") if each.status == 202), default=float("inf"))
    yield within(f"submits are accepted again within {BACK_SECONDS} s", accepted - ended, BACK_SECONDS)
    yield equal("it is ready again", record.statuses("ready again")[-1:], [200])
    yield equal("an old id is 200", record.answer("old id").status, 200)
    yield equal("the task that ran all the while is SUCCEEDED", record.state("running"), "SUCCEEDED")
    yield equal("neither program was restarted, and both stop with 0", statuses(record), {"web": 0, "dispatcher": 0})


def statuses(record: Record) -> dict[str, int | None]:
    """Return the exit status of every web and dispatcher."""
    return {name: each.status for name, each in record.programs.items() if not name.startswith("sql")}


def one_done_one_running(stage: Stage, api: Client) -> tuple[int, int, Callable[[], None]]:
    """Return the id of a task that has SUCCEEDED, of one that is RUNNING, and what lets that one end."""
    old = api.accepted("echo", label="old")
    gate = stage.gate()
    running = api.accepted("gate", label="running", gate=str(gate))
    api.follow(old)
    api.await_state(running, "RUNNING")
    return old, running, lambda: stage.open(gate)


def _stopped(stage: Stage, mode: Literal["fast", "immediate"]) -> None:
    web, dispatcher = stage.web(), stage.dispatcher()
    api, admin = stage.client(web), stage.client(web.admin)
    old, running, let_end = one_done_one_running(stage, api)
    stage.cluster.stop(mode)
    at_once(lambda: api.submit("echo", label="first"), lambda: api.get(f"/tasks/{old}", label="first"))
    for _ in range(3):
        api.submit("echo", label="then")
        api.get(f"/tasks/{old}", label="then")
    admin.get("/readyz", label="readiness")
    admin.get("/healthz", label="health")
    let_end()
    dispatcher.wait_for("write.failed")
    stage.cluster.start()
    back(stage, web)
    api.get(f"/tasks/{old}", label="old id")
    api.follow(running)


@step("server-stopped-fast", "PostgreSQL stopped, fast, and started again: 503 at once, then all goes on by itself")
def stopped_fast(stage: Stage) -> None:
    _stopped(stage, "fast")


@step("server-stopped-immediate", "the same with an immediate stop, after which PostgreSQL has to recover")
def stopped_immediate(stage: Stage) -> None:
    _stopped(stage, "immediate")


@stopped_fast.must
@stopped_immediate.must
def _(record: Record) -> Iterator[Claim]:
    first, then = record.answers("first"), record.answers("then")
    yield equal("the first submit and read are 503", [each.status for each in first], [503, 503])
    yield in_time(first)
    yield equal("so are all others", [each.status for each in then], [503] * 6)
    yield equal("each says database-away", [each.code for each in (*first, *then)], ["database-away"] * 8)
    yield within(f"and at once, in {AT_ONCE_SECONDS} s", median(each.seconds for each in then), AT_ONCE_SECONDS)
    yield equal("no refused submit has a row", [each.path for each in then if record.rows_of(each.identity)], [])
    seen = [record.answer(each).status for each in ("readiness", "health")]
    yield equal("readiness says so, health does not", seen, [503, 200])
    yield from outlived(record, record.event("server started")["at"])


@step("read-only", "a database that is read-only for a while, as after a failover, is an outage, both ways")
def read_only(stage: Stage) -> None:
    web, dispatcher = stage.web(), stage.dispatcher()
    api, admin = stage.client(web), stage.client(web.admin)
    old, running, let_end = one_done_one_running(stage, api)
    _let_write(stage, "off")
    try:
        # A backend takes notice between two of its statements: the first few may still be written.
        stage.wait_until(lambda: api.submit("echo", label="until noticed").status == 503, "a submit is refused")
        for _ in range(3):
            api.submit("echo", label="refused")
        api.cancel(running, label="refused")
        admin.get("/readyz", label="readiness")
        admin.get("/healthz", label="health")
        let_end()
        dispatcher.wait_for("read-only transaction")
        stage.sql("select state from tally.task where id = %(id)s", id=running, label="its body has ended")
    finally:
        _let_write(stage, "on")
    back(stage, web)
    api.get(f"/tasks/{old}", label="old id")
    api.follow(running)


def _let_write(stage: Stage, write: Literal["on", "off"]) -> None:
    """Let every new transaction of the server be read-only or not, in sessions that are open too."""
    change = "reset default_transaction_read_only" if write == "on" else "set default_transaction_read_only = on"
    stage.sql(f"alter system {change}")
    stage.sql("select pg_reload_conf()")
    wanted = "off" if write == "on" else "on"
    stage.wait_until(lambda: stage.database.value("show transaction_read_only") == wanted, f"read-only is {wanted}")
    stage.event(f"writing is {write}")


@read_only.must
def _(record: Record) -> Iterator[Claim]:
    refused = record.answers("refused")
    seen = [[each.status, each.code] for each in refused]
    yield equal("submits and a cancel are 503 database-away", seen, [[503, "database-away"]] * 4)
    yield in_time(refused)
    kept = [record.rows_of(each.identity) for each in refused if each.is_submit]
    yield equal("no refused submit has a row", kept, [[]] * 3)
    asked = record.row("running")
    yield equal("nor was the cancel written", asked and asked["cancel_requested_at"], None)
    seen_health = [record.answer(each).status for each in ("readiness", "health")]
    yield equal("readiness says so, health does not", seen_health, [503, 200])
    yield equal("an outcome is kept meanwhile", record.sql("its body has ended"), [{"state": "RUNNING"}])
    yield from outlived(record, record.event("writing is on")["at"])

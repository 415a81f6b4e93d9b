"""Connections run out, the server's or a web's own: refused in time and without a row, and no task fails for it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from evidence.deadline import in_time
from evidence.record import Exchange, Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step
from evidence.steps.outages import back, one_done_one_running, outlived
from evidence.together import at_once

OURS: Final = "from pg_stat_activity where datname = current_database() and application_name like 'tally%'"


def refused_in_time(record: Record) -> Iterator[Claim]:
    """Claim what must be seen of those answers that are labelled so."""
    answers = record.answers("refused")
    seen = [[each.status, each.code] for each in answers]
    yield equal("submits and reads are 503 database-away", seen, [[503, "database-away"]] * len(answers))
    yield in_time(answers)
    rows = [row["id"] for each in answers if each.is_submit for row in record.rows_of(each.identity)]
    yield equal("no refused submit has a row", rows, [])


@contextmanager
def _every_connection_taken(stage: Stage) -> Iterator[None]:
    """Take every connection of the server, ours among them."""
    from psycopg import OperationalError  # noqa: PLC0415 - what is claimed is worked out without the driver

    with ExitStack() as taken:
        first = taken.enter_context(stage.database.session("evidence taker"))

        def none_is_ours() -> bool:
            first.sql(f"select pg_terminate_backend(pid) {OURS}")
            try:
                while True:
                    taken.enter_context(stage.database.session("evidence taker"))
            except OperationalError as error:
                if "too many clients" not in str(error):
                    raise
            return not first.sql(f"select pid {OURS}")

        stage.wait_until(none_is_ours, "every connection is taken and none is ours")
        first.sql(
            "select count(*) as taken, current_setting('max_connections')::bigint as there_are"
            " from pg_stat_activity where application_name = 'evidence taker'",
            label="while taken",
        )
        yield
    stage.event("connections released")


@step("connections-in-use", "every connection of the server taken by others: 503 in time, no task fails, recovery")
def connections_in_use(stage: Stage) -> None:
    web, dispatcher = stage.web(), stage.dispatcher()
    api, admin = stage.client(web), stage.client(web.admin)
    old, running, let_end = one_done_one_running(stage, api)
    with _every_connection_taken(stage):
        at_once(lambda: api.submit("echo", label="refused"), lambda: api.get(f"/tasks/{old}", label="refused"))
        for _ in range(3):
            api.submit("echo", label="refused")
        admin.get("/readyz", label="readiness")
        admin.get("/healthz", label="health")
        let_end()
        dispatcher.wait_for("too many clients")
    back(stage, web)
    api.get(f"/tasks/{old}", label="old id")
    api.follow(running)


@connections_in_use.must
def _(record: Record) -> Iterator[Claim]:
    (seen,) = record.sql("while taken")
    yield Claim("others have every connection", seen, seen["taken"] == seen["there_are"])
    yield from refused_in_time(record)
    ready = [record.answer(each).status for each in ("readiness", "health")]
    yield equal("readiness says so, health does not", ready, [503, 200])
    yield from outlived(record, record.event("connections released")["at"])


@step(
    "web-connections-in-use", "cancels behind a locked row leave a session to others; with none left all is 503 in time"
)
def web_connections_in_use(stage: Stage) -> None:
    web = stage.web(env={"TALLY_DATABASE_CONNECTIONS": "2"})
    api, gate = stage.client(web), stage.gate()
    stage.dispatcher("--slots", "1")
    running = api.accepted("gate", label="running", gate=str(gate))
    api.await_state(running, "RUNNING")
    locked = api.accepted("echo", label="locked")
    waiting = f"select count(*) {OURS} and wait_event_type = 'Lock'"

    def read_behind_them() -> Exchange:
        stage.wait_until(lambda: stage.database.value(waiting) == 1, "a session waits for the row")
        return api.get(f"/tasks/{running}", label="read")

    with stage.database.session("evidence holder") as holder:
        holder.sql("begin")
        holder.sql("select id from tally.task where id = %(id)s for update", id=locked)
        cancels = [lambda: api.cancel(locked, label="canceled behind the lock")] * 4
        at_once(*cancels, read_behind_them, lambda: api.submit("echo", label="submitted"))
        holder.sql("rollback")
    stage.sql("select state, cancel_requested_at from tally.task where id = %(id)s", id=locked, label="then")
    api.get(f"/tasks/{running}", label="read afterwards")
    api.cancel(locked, label="canceled afterwards")
    stage.open(gate)
    api.follow(running)
    api.follow(locked)
    with stage.database.session("evidence holder") as holder:
        holder.sql("begin")
        holder.sql("lock table tally.task in access exclusive mode")
        reads = [lambda: api.get(f"/tasks/{running}", label="read of a locked table")] * 4
        at_once(*reads, lambda: api.submit("echo", label="submitted to a locked table"))
        holder.sql("rollback")
    api.get(f"/tasks/{running}", label="read at the end")


@web_connections_in_use.must
def _(record: Record) -> Iterator[Claim]:
    canceled = record.answers("canceled behind the lock")
    yield equal("no cancel gets at the row: 503", [each.status for each in canceled], [503] * 4)
    yield equal("and nothing is changed", record.sql("then"), [{"state": "QUEUED", "cancel_requested_at": None}])
    read, submitted = record.answer("read"), record.answer("submitted")
    yield equal("a read has a session all the same", read.status, 200)
    yield equal("a submit, whose session is admission's own, is 202", submitted.status, 202)
    behind = [*record.answers("read of a locked table"), record.answer("submitted to a locked table")]
    yield equal("where every session waits, reads and submits are 503", [each.status for each in behind], [503] * 5)
    yield in_time((*canceled, read, submitted, *behind))
    away = "database.away" in record.programs["web"].stdout + record.programs["web"].stderr
    yield equal("a lock is not taken for an outage", away, False)
    then = [record.answer(f"{what} afterwards").status for what in ("read", "canceled")]
    yield equal("afterwards a read is 200, a cancel 202", then, [200, 202])
    yield equal("a read at the end is 200", record.answer("read at the end").status, 200)
    yield equal("which ends it", [record.state("locked"), record.starts("locked")], ["CANCELED", 0])
    states = [record.state(each) for each in ("running", "submitted")]
    yield equal("the others succeed", states, ["SUCCEEDED", "SUCCEEDED"])

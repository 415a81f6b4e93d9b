"""The server's notification queue is full, for real: it costs the hints and nothing else.

On a server of its own with the smallest queue there is; before PostgreSQL 17 it is always 8 GB.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from evidence.deadline import in_time
from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within

BLOCKER: Final = "evidence blocker"


@contextmanager
def _blocked(stage: Stage) -> Iterator[None]:
    """A session that listens and sits in a transaction: nothing leaves the queue."""
    with stage.database.session(BLOCKER) as blocker:
        blocker.sql("listen anything")
        blocker.sql("begin")
        blocker.sql("select pg_backend_pid() as pid, current_database() as database", label="the blocker")
        yield
        blocker.sql("rollback")


def _fill(stage: Stage) -> None:
    """Fill the queue to the last byte that one of our notifications would need."""
    from psycopg.errors import ProgramLimitExceeded  # noqa: PLC0415 - what is claimed needs no driver

    with stage.database.session() as session:
        for size in (7_900, 100, 1):
            with suppress(ProgramLimitExceeded):
                while True:
                    session.sql("select pg_notify('fill', repeat('x', %(size)s))", size=size)


@step(
    "notify-queue-full",
    "NOTIFY queue full: submits are 202, the sweep finds the tasks, readiness names the session that blocks it",
    least_version=17,
)
def queue_full(stage: Stage) -> None:
    stage.sql("alter system set max_notify_queue_pages = 64")
    stage.cluster.stop()
    stage.cluster.start()
    stage.sql("select version()", label="server")
    web = stage.web()
    stage.dispatcher()
    api, admin = stage.client(web), stage.client(web.admin)
    running = api.accepted("sleep", label="running", seconds=60)
    api.await_state(running, "RUNNING")
    with _blocked(stage):
        _fill(stage)
        for number in range(5):
            task = api.accepted("echo", label="submitted")
            api.follow(task, label=f"followed {number}")
        api.cancel(running, label="canceled")
        api.follow(running)
        stage.sql("select pg_notification_queue_usage() as usage", label="still full")
        admin.get("/readyz", label="while blocked")
    empty = "select pg_notification_queue_usage() < 0.1"
    stage.wait_until(lambda: stage.database.value(empty), "the queue has emptied")
    api.follow(api.accepted("echo", label="afterwards"))
    admin.get("/readyz", label="afterwards ready")


@queue_full.must
def _(record: Record) -> Iterator[Claim]:
    yield Claim("the server", record.sql("server")[0]["version"], True)
    refused = [each.fault for each in record.statements if "pg_notify('fill'" in each.statement and each.fault]
    yield equal("the queue was full for large and small", [str(each).split()[0] for each in refused], ["54000"] * 3)
    (usage,) = record.sql("still full")
    yield Claim("and still was at the end", usage, usage["usage"] > 0.9)
    submitted = record.answers("submitted")
    yield equal("submits are 202", [each.status for each in submitted], [202] * 5)
    yield in_time((*submitted, record.answer("canceled")))
    picked_up = [record.answers(f"followed {number}")[-1] for number in range(5)]
    yield equal("the sweep finds the tasks", [each.json["state"] for each in picked_up], ["SUCCEEDED"] * 5)
    taken = [late.ended - early.ended for early, late in zip(submitted, picked_up, strict=True)]
    yield within("within 2 s each, the sweep being 0.2 s", max(taken), 2)
    yield equal(
        "a cancel is 202 and finds its body",
        [record.answer("canceled").status, record.state("running")],
        [202, "CANCELED"],
    )
    (blocker,) = record.sql("the blocker")
    answer = record.answer("while blocked")
    holders = [
        [each["pid"], each["application_name"], each["database"], each["state"]]
        for each in answer.json["notification_queue_holders"]
    ]
    expected = [blocker["pid"], BLOCKER, blocker["database"], "idle in transaction"]
    yield equal("readiness stays 200", answer.status, 200)
    yield equal("and names the session that blocks the queue, first", holders[:1], [expected])
    after = record.answer("afterwards ready")
    yield equal("afterwards it names nobody", [after.status, after.json["notification_queue_holders"]], [200, []])
    yield equal("and all goes on", record.state("afterwards"), "SUCCEEDED")

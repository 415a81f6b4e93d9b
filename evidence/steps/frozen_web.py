"""A web process frozen in the middle of an admission, while it holds the queue for every other."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from signal import SIGCONT, SIGSTOP
from typing import Any, Final

from evidence.backends import asleep
from evidence.deadline import SLACK_SECONDS
from evidence.programs import Program
from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within
from evidence.steps.outages import statuses

OTHERS_SECONDS: Final = 3
STILL_ASLEEP: Final = "select pid from pg_stat_activity where pid = %(pid)s and wait_event = 'PgSleep'"


@contextmanager
def _frozen_while_submitting(stage: Stage, web: Program, label: str, **fault: Any) -> Iterator[None]:
    """Submit, and freeze the web while the server is at this; inside, it is frozen and the server has gone on."""
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(lambda: stage.client(web).submit("echo", label=label, **fault))
        backend = asleep(stage, "tally-web%")
        web.send(SIGSTOP)
        try:
            stage.wait_until(
                lambda: not stage.sql(STILL_ASLEEP, pid=backend), "the server has done its part", every=0.03
            )
            yield
        finally:
            web.send(SIGCONT)
        answer.result()


@step("web-frozen", "a web frozen in an admission keeps others waiting 3 s at most; thawed, it tells what became of it")
def web_frozen(stage: Stage) -> None:
    web, other = stage.web(), stage.web()
    stage.dispatcher()

    def admits(program: Program, label: str) -> None:
        submit = partial(stage.client(program).submit, "echo", label=label)
        stage.wait_until(lambda: submit().status == 202, f"{program} admits", every=0.05)

    admits(other, "before all")
    with stage.database.fault("insert_delay"), _frozen_while_submitting(stage, web, "before COMMIT", insert_delay=0.5):
        admits(other, "others, before COMMIT")
    with stage.database.fault("commit_delay"), _frozen_while_submitting(stage, web, "in COMMIT", commit_delay=0.5):
        admits(other, "others, in COMMIT")
        stage.sql("select count(*) as rows from tally.task where input ? 'commit_delay'", label="rows, in COMMIT")
    admits(web, "thawed")
    stage.await_all()


@web_frozen.must
def _(record: Record) -> Iterator[Claim]:
    frozen = [each["at"] for each in record.events("signal") if each["signal"] == "SIGSTOP"]
    for at, moment in zip(frozen, ("before COMMIT", "in COMMIT"), strict=True):
        admitted = record.answers(f"others, {moment}")[-1]
        yield equal(f"frozen {moment}: another web admits again", admitted.status, 202)
        most = OTHERS_SECONDS + SLACK_SECONDS
        yield within(f"{OTHERS_SECONDS} s after the freeze, and {SLACK_SECONDS} to and fro", admitted.ended - at, most)
    before, committed = record.answer("before COMMIT"), record.answer("in COMMIT")
    yield equal("what was not committed is 503 when it thaws", [before.status, before.code], [503, "database-away"])
    yield equal("and has no row", record.row("before COMMIT"), None)
    yield equal("what was committed meanwhile", record.sql("rows, in COMMIT"), [{"rows": 1}])
    yield equal("is 202", committed.status, 202)
    yield equal("and SUCCEEDED", record.state("in COMMIT"), "SUCCEEDED")
    yield equal("thawed, it admits as before", record.statuses("thawed")[-1], 202)
    yield equal(
        "no program was restarted, and all stop with 0", statuses(record), {"web": 0, "web 2": 0, "dispatcher": 0}
    )

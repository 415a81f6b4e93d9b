"""The reply to a submit's COMMIT is lost: 202 if it was committed, 503 if not, 504 only while nobody can be asked."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from evidence.backends import asleep, terminate
from evidence.deadline import in_time
from evidence.programs import Program
from evidence.proxy import Proxy
from evidence.record import Exchange, Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step

ADMISSION: Final = "tally-web%"


@contextmanager
def _without_reply(stage: Stage, web: Program, proxy: Proxy, label: str, **given: Any) -> Iterator[Future[Exchange]]:
    """Submit, and hold replies back from the moment the server is in its COMMIT; at the end, lose them."""
    with ThreadPoolExecutor(1) as client, stage.database.fault("commit_delay"):
        answer = client.submit(lambda: stage.client(web, timeout=60).submit("echo", label=label, **given))
        try:
            # In its COMMIT, where the trigger is.
            asleep(stage, ADMISSION)
            proxy.mute()
            yield answer
        finally:
            proxy.cut()
        answer.result()


def _admits(stage: Stage, web: Program) -> None:
    submit = stage.client(web).submit
    stage.wait_until(lambda: submit("echo", label="admitted").status == 202, "the web admits", every=0.05)


@step("submit-reply-lost", "the reply to COMMIT lost: 202 if there is a row, 503 if not, 504 while nobody can be asked")
def reply_lost(stage: Stage) -> None:
    with stage.proxy() as proxy:
        # The web alone is cut off.
        web = stage.web(env={"DATABASE_URL": proxy.url})
        stage.dispatcher()
        _admits(stage, web)
        with _without_reply(stage, web, proxy, "committed", commit_delay=0.5):
            rows = "select count(*) from tally.task where input ? 'commit_delay'"
            stage.wait_until(lambda: stage.database.value(rows) == 1, "it is committed")
        _admits(stage, web)
        with _without_reply(stage, web, proxy, "not committed", commit_delay=20):
            terminate(stage, asleep(stage, ADMISSION), label="ended in its COMMIT")
        _admits(stage, web)
        again: dict[str, Any] = {"key": "k", "marker": "once", "commit_delay": 0.5}
        with _without_reply(stage, web, proxy, "nobody to ask", **again) as answer:
            answer.result()
            stage.sql("select id from tally.task where idempotency_key = 'k'", label="there all the time")
        _admits(stage, web)
        stage.client(web).submit("echo", label="asked again", **again)
        stage.await_all()
        web.stop()


@reply_lost.must
def _(record: Record) -> Iterator[Claim]:
    committed, not_committed = record.answer("committed"), record.answer("not committed")
    yield equal("there is a row: 202", committed.status, 202)
    yield equal("with its id", committed.task_id, (record.row("committed") or {}).get("id"))
    yield equal("a backend was ended in its COMMIT", record.sql("ended in its COMMIT"), [{"ended": True}])
    yield equal("no row: 503", [not_committed.status, not_committed.code], [503, "database-away"])
    yield equal("and none comes", record.row("not committed"), None)
    seen = [line.partition("admission.settled ")[2] for line in _log(record) if "admission.settled" in line]
    yield equal("both were settled by asking a fresh connection", seen, ["tasks=1 made=1", "tasks=1 made=0"])
    unknown, again = record.answer("nobody to ask"), record.answer("asked again")
    yield equal("nobody can be asked: 504", [unknown.status, unknown.code], [504, "outcome-unknown"])
    yield equal("though it is there", len(record.sql("there all the time")), 1)
    seen_again = [again.status, again.task_id]
    there = [row["id"] for row in record.sql("there all the time")]
    yield equal("asked again with its key: 202, the same task", seen_again, [202, *there])
    yield in_time((committed, not_committed, unknown))


@step("submit-reply-lost-crash", "the server crashes in that COMMIT and gives the id to a stranger: 503, not his task")
def reply_lost_crash(stage: Stage) -> None:
    with stage.proxy() as proxy:
        # Time for a server to crash and start in.
        web = stage.web(env={"DATABASE_URL": proxy.url, "TALLY_REQUEST_SECONDS": "40"})
        stage.dispatcher()
        _admits(stage, web)
        with _without_reply(stage, web, proxy, "lost", commit_delay=30):
            (last,) = stage.sql("select last_value as id from tally.task_id_seq", label="its id")
            stage.cluster.kill()
            stage.cluster.start()
            # As after a crash that lost the log of the sequence too.
            stage.sql(f"alter table tally.task alter column id restart with {last['id']}")
            stage.sql(STRANGER, label="stranger")
            stage.event("submitted by sql", identities=["a stranger's"])
        _admits(stage, web)
        stage.await_all()
        web.stop()


STRANGER: Final = """
insert into tally.task (token, queue, kind, input)
values (gen_random_uuid(), 'default', 'echo', '{"marker": "a stranger''s"}')
returning id
"""


@reply_lost_crash.must
def _(record: Record) -> Iterator[Claim]:
    lost = record.answer("lost")
    yield equal("the stranger has the id that was handed out before", record.sql("stranger"), record.sql("its id"))
    yield equal("the lost submit is 503", [lost.status, lost.code], [503, "database-away"])
    yield equal("and has no row", record.row("lost"), None)
    yield equal(
        "it was settled, and found not to be made", sum("settled tasks=1 made=0" in each for each in _log(record)), 1
    )
    (stranger,) = record.rows_of("a stranger's")
    yield equal("the stranger's task SUCCEEDED", stranger["state"], "SUCCEEDED")


def _log(record: Record) -> list[str]:
    web = record.programs["web"]
    return [*web.stdout.splitlines(), *web.stderr.splitlines()]

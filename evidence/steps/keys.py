"""The same request again under its Idempotency-Key: one row and the same id each time, whatever lay between."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from evidence.backends import asleep
from evidence.client import Client
from evidence.programs import Program
from evidence.record import Exchange, Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within
from evidence.together import at_once, in_one_batch

MANY: Final = 50
QUICK_SECONDS: Final = 1


def _ask(api: Client, key: str, label: str, commit_delay: float = 0) -> Exchange:
    return api.submit("echo", label=label, key=key, marker=f"under {key}", commit_delay=commit_delay)


def _ask_until_told(stage: Stage, api: Client, key: str, label: str, commit_delay: float = 0) -> None:
    """Ask until no open transaction holds the key any more."""
    ask = partial(_ask, api, key, label, commit_delay)
    stage.wait_until(lambda: ask().code != "key-in-progress", "the key is free", every=0.05)


@step("idempotency-key", "at once, in one batch, when full, after a lost answer: the same id; another body: 422")
def again(stage: Stage) -> None:
    web, other = stage.web(), stage.web()
    api, apart = stage.client(web), stage.client(other)
    stage.dispatcher("--slots", "1")
    at_once(*[partial(_ask, each, "at once", "at once") for each in [api, apart] * (MANY // 2)])
    in_one_batch(stage, web, *[partial(_ask, api, "one batch", "one batch")] * 2)
    api.submit("echo", label="another body", key="one batch")
    _when_full(stage, api)
    _answer_lost(stage, web, apart)
    stage.await_all()


def _when_full(stage: Stage, api: Client) -> None:
    _ask(api, "full", "before it is full")
    stage.await_all()
    stage.max_open(2)
    gate = stage.gate()
    for _ in range(2):
        api.accepted("gate", gate=str(gate))
    _ask(api, "full", "while it is full")
    _ask(api, "unknown", "unknown while it is full")
    stage.open(gate)
    stage.await_all()


def _answer_lost(stage: Stage, web: Program, apart: Client) -> None:
    """A web process is killed in the COMMIT; its client asks another one."""
    with ThreadPoolExecutor(1) as client, stage.database.fault("commit_delay"):
        lost = client.submit(_ask, stage.client(web), "lost", "lost", 0.5)
        asleep(stage, "tally-web%")
        web.kill()
        lost.result()
        _ask_until_told(stage, apart, "lost", "asked again", 0.5)


def _one_task(record: Record, key: str, answers: list[Exchange]) -> Iterator[Claim]:
    seen = {str(each.status) for each in answers}
    yield equal(f"{key}: {len(answers)} answers, each 202", sorted(seen), ["202"])
    rows = [row["id"] for row in record.tasks if row["idempotency_key"] == key]
    ids = sorted({each.task_id for each in answers}, key=str)
    yield Claim(f"{key}: all name the one row", {"rows": rows, "answered": ids}, len(rows) == 1 and rows == ids)


@again.must
def _(record: Record) -> Iterator[Claim]:
    many = record.answers("at once")
    yield equal(f"{MANY} at once, over two web processes", len(many), MANY)
    yield from _one_task(record, "at once", many)
    yield equal("two wait together for the queue", record.event("gathered")["submits"], 2)
    yield from _one_task(record, "one batch", record.answers("one batch"))
    reused = record.answer("another body")
    yield equal("another body is 422", [reused.status, reused.code], [422, "key-reused"])
    yield equal("and has no row", record.row("another body"), None)
    yield from _one_task(record, "full", [record.answer("before it is full"), record.answer("while it is full")])
    unknown = record.answer("unknown while it is full")
    yield equal("a key that is not known is 503 then", [unknown.status, unknown.code], [503, "overloaded"])
    yield equal("and has no row", record.row("unknown while it is full"), None)
    yield equal("an answer was lost", [record.answer("lost").status, record.programs["web"].status], [None, -9])
    yield from _one_task(record, "lost", record.answers("asked again")[-1:])


@step("idempotency-key-held", "a key that an open transaction holds: 503 key-in-progress, and nobody else is held up")
def held(stage: Stage) -> None:
    api = stage.client(stage.web())
    stage.dispatcher()
    with stage.database.session("evidence holder") as holder:
        holder.sql("begin")
        holder.sql(HELD)
        at_once(partial(_ask, api, "k", "held"), *[partial(api.submit, "echo", label="others")] * 20)
        holder.sql("rollback")
    _ask_until_told(stage, api, "k", "afterwards")
    stage.await_all()


HELD: Final = """
insert into tally.task (token, queue, kind, input, idempotency_key, digest)
values (gen_random_uuid(), 'default', 'echo', '{"marker": "the holder''s"}', 'k', 'x')
"""


@held.must
def _(record: Record) -> Iterator[Claim]:
    refused, others = record.answer("held"), record.answers("others")
    yield equal("503", [refused.status, refused.code], [503, "key-in-progress"])
    yield within(f"within {QUICK_SECONDS} s", refused.seconds, QUICK_SECONDS)
    yield equal("twenty others are 202", [each.status for each in others], [202] * 20)
    yield within(f"within {QUICK_SECONDS} s", max(each.seconds for each in others), QUICK_SECONDS)
    yield from _one_task(record, "k", record.answers("afterwards")[-1:])

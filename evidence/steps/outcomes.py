"""A terminal write that cannot be, for a while: no other is held up, its slot is held, and the truth is written."""

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

from evidence import tries
from evidence.client import Client
from evidence.record import Record
from evidence.spans import most_at_once
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within

OTHERS = 12
TRY_SECONDS = 2.0
SLACK = 1.0
"""For a busy machine."""
SOON = 1.5
"""Seconds from a submit to the end of a task of 50 ms, where nothing holds it up."""


def _others(api: Client) -> None:
    """More tasks than there are slots for, and then one after the other."""
    for each in [api.accepted("sleep", label="together", seconds=0.05) for _ in range(OTHERS)]:
        api.follow(each)
    for number in range(5):
        api.follow(api.accepted("sleep", label=f"other {number}", seconds=0.05), label=f"other {number}, followed")


def _unhindered(record: Record) -> Iterator[Claim]:
    """With two slots, one of them held."""
    together = [row for row in record.tasks if row["id"] in {each.task_id for each in record.answers("together")}]
    yield equal("other tasks succeeded meanwhile", [row["state"] for row in together], ["SUCCEEDED"] * OTHERS)
    yield equal("one slot of two was held: one at a time", most_at_once(together), 1)
    for number in range(5):
        took = record.answers(f"other {number}, followed")[-1].ended - record.answer(f"other {number}").began
        yield within(f"other {number}: not held up, at its end within {SOON:g} s", took, SOON)


def _written(record: Record) -> Iterator[Claim]:
    row = record.row("stuck")
    yield equal("then the true result was written", row and [row["state"], row["result"]], ["SUCCEEDED", {"words": 2}])
    yield equal("its body was started once", record.starts("stuck"), 1)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("finish-delayed", "a terminal write that takes longer than 2 s is tried on; no other waits for it")
def delayed(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    gate.touch()
    with stage.database.fault("finish_delay"):
        dispatcher = stage.dispatcher("--slots", "2")
        stuck = api.accepted("gate", label="stuck", gate=str(gate), text="Go one", finish_delay=60)
        dispatcher.wait_for("outcomes.failed")
        _others(api)
        dispatcher.wait_for("write.failed tries=1 ")
        stage.sql("select state, result from tally.task where id = %(task)s", task=stuck, label="meanwhile")
        tries.keep(stage, dispatcher, "outcomes")
    api.follow(stuck)
    dispatcher.stop()


@delayed.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("while it cannot be written", record.sql("meanwhile"), [{"state": "RUNNING", "result": None}])
    yield from _unhindered(record)
    lines = tries.errors(record)
    timeouts = [line for line in lines if "canceling statement due to statement timeout" in line]
    yield Claim("it was tried again and again, each time until its time was over", lines, timeouts == lines != [])
    longest = max(tries.gaps(lines))
    yield Claim(
        "2 s each, with 250 ms between them at most", longest, TRY_SECONDS < longest <= TRY_SECONDS + 0.25 + SLACK
    )
    yield from _written(record)


@step("finish-refused", "a terminal write that a trigger refuses is tried until it does not; no other waits for it")
def refused(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    gate.touch()
    with stage.database.fault("finish_refuse"):
        dispatcher = stage.dispatcher("--slots", "2")
        stuck = api.accepted("gate", label="stuck", gate=str(gate), text="Go one", finish_refuse="not now")
        dispatcher.wait_for("outcomes.failed")
        _others(api)
        stage.sql("select state, result from tally.task where id = %(task)s", task=stuck, label="meanwhile")
        tries.keep(stage, dispatcher, "outcomes-2")
    api.follow(stuck)
    dispatcher.stop()


@refused.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("while it cannot be written", record.sql("meanwhile"), [{"state": "RUNNING", "result": None}])
    yield from _unhindered(record)
    lines = tries.errors(record)
    yield Claim("every try was refused", lines[:2], bool(lines) and all("not now" in line for line in lines))
    gaps = tries.gaps(lines)
    yield Claim("they are 25 ms apart at least", min(gaps), min(gaps) >= 0.024)
    yield Claim("and 250 ms, with the 2 s that a try may take, at most", max(gaps), max(gaps) <= 0.25 + TRY_SECONDS)
    yield from _written(record)


@step("finish-forbidden", "without the privilege to finish tasks, outcomes are kept, and written once it is granted")
def forbidden(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    with stage.database.fault("role"):
        parts = urlsplit(stage.database.url)
        plain = urlunsplit(parts._replace(netloc=f"{parts.path.lstrip('/')}@{parts.hostname}:{parts.port}"))
        dispatcher = stage.dispatcher("--slots", "2", env={"DATABASE_URL": plain})
        stuck = api.accepted("gate", label="stuck", gate=str(gate), text="Go one")
        api.await_state(stuck, "RUNNING")
        with stage.database.fault("finish_forbid"):
            stage.open(gate)
            dispatcher.wait_for("outcomes.failed")
            waiting = api.accepted("echo", label="waiting")
            stage.wait_until(lambda: waiting in stage.effects, "the second body has started")
            third = api.accepted("echo", label="third")
            dispatcher.wait_for("write.failed tries=8 ")
            stage.sql("select state, result from tally.task order by id", label="meanwhile")
        for each in (stuck, waiting, third):
            api.follow(each)
        dispatcher.stop()


@forbidden.must
def _(record: Record) -> Iterator[Claim]:
    said = record.programs["dispatcher"].stdout
    expected = "permission denied for function finish_tasks"
    yield Claim("the privilege was missing", said.count(expected), expected in said)
    states = ["RUNNING", "RUNNING", "QUEUED"]
    meanwhile = record.sql("meanwhile")
    yield equal("both slots are held, the third task waits", [row["state"] for row in meanwhile], states)
    yield equal("nothing was written", [row["result"] for row in meanwhile], [None] * 3)
    yield equal("never more than two at once", most_at_once(record.tasks), 2)
    yield equal("the others succeeded too", [record.state("waiting"), record.state("third")], ["SUCCEEDED"] * 2)
    yield from _written(record)


@step("finish-reply-lost", "a terminal write that was committed and never answered is found, and not written again")
def reply_lost(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    with stage.proxy() as proxy:
        dispatcher = stage.dispatcher(env={"DATABASE_URL": proxy.url, "TALLY_LOG_LEVEL": "debug"})
        # So that the connection for terminal writes is open already.
        api.follow(api.accepted("echo"))
        stuck = api.accepted("gate", label="stuck", gate=str(gate), text="Go one")
        stage.wait_until(lambda: stuck in stage.effects, "the body has started")
        proxy.mute()
        stage.open(gate)
        api.follow(stuck, label="unanswered")
        row = "select to_jsonb(task) as task from tally.task where id = %(task)s"
        stage.sql(row, task=stuck, label="unanswered")
        proxy.cut()
        dispatcher.wait_for("verdict=yours already")
        dispatcher.stop()


@reply_lost.must
def _(record: Record) -> Iterator[Claim]:
    before, after = record.sql("unanswered")[0]["task"], record.row("stuck")
    yield equal("it was committed when no reply came through", before["state"], "SUCCEEDED")
    yield equal("the row stays exactly so", after, before)
    task = record.answer("stuck").task_id
    lines = record.programs["dispatcher"].stdout.splitlines()
    said = [line for line in lines if f"task.finished task={task} " in line]
    yield Claim("asked again, it was found done", said, len(said) == 1 and "verdict=yours already" in said[0])
    yield from _written(record)

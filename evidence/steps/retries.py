"""What is attempted again: after an error, when its time comes, and never twice."""

from collections.abc import Iterator
from typing import Any

from evidence.record import Record, Row
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within

WAIT_SECONDS = 3
ROW = "select to_jsonb(task) as task from tally.task where id = %(task)s"
WAITS = "select due_at is not null from tally.task where id = %(task)s"


def attempts(row: Row | None) -> list[int]:
    """The attempts that another followed."""
    return [each["attempt"] for each in (row and row["attempts"]) or []]


def reasons(row: Row | None) -> list[str]:
    return [each["error"]["reason"] for each in (row and row["attempts"]) or []]


def await_waiting(stage: Stage, task: int) -> None:
    stage.wait_until(lambda: stage.database.value(WAITS, task=task), "it waits for its time", every=0.05)


@step("retried", "a body that raises is attempted again as often as its kind allows; each error is kept")
def retried(stage: Stage) -> None:
    api, dispatcher = stage.client(stage.web()), stage.dispatcher()
    recovers = api.accepted("try", label="recovers", ways=["raise", "again", "return"], after=0.2)
    api.follow(recovers, label="followed")
    api.follow(api.accepted("try", label="never", ways=["raise"]))
    dispatcher.stop()


@retried.must
def _(record: Record) -> Iterator[Claim]:
    recovers, never = record.row("recovers"), record.row("never")
    yield equal("it succeeded", recovers and [recovers["state"], recovers["result"]], ["SUCCEEDED", {"attempt": 3}])
    yield equal("two attempts are kept, with why they ended", reasons(recovers), ["task raised ValueError", "not yet"])
    shown: Any = record.answers("followed")[-1].json["attempts"]
    yield equal("its representation shows all three", [each["attempt"] for each in shown], [1, 2, 3])
    yield equal("each was begun once", record.starts("recovers"), 3)
    yield equal("the other is FAILED after three", never and [never["state"], never["attempt"]], ["FAILED", 3])
    yield equal("with the last one's error", record.reason("never"), "task raised ValueError")
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("retry-reply-lost", "an attempt to follow was committed and never answered: it is neither lost nor begun twice")
def reply_lost(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    with stage.proxy() as proxy:
        dispatcher = stage.dispatcher(env={"DATABASE_URL": proxy.url})
        # So that the connection for terminal writes is open already.
        api.follow(api.accepted("echo"))
        task = api.accepted("try", label="task", gate=str(gate), ways=["raise", "return"])
        stage.wait_until(lambda: task in stage.effects, "the body has started")
        proxy.mute()
        stage.open(gate)
        api.await_state(task, "QUEUED")
        stage.sql(ROW, task=task, label="unanswered")
        proxy.cut()
        dispatcher.wait_for("verdict=yours already")
        api.follow(task)
        dispatcher.stop()


@reply_lost.must
def _(record: Record) -> Iterator[Claim]:
    before, row = record.sql("unanswered")[0]["task"], record.row("task")
    yield equal("it was committed when no reply came through", attempts(before), [1])
    said = [line for line in record.programs["dispatcher"].stdout.splitlines() if "task.retried" in line]
    yield Claim("asked again, it was found done", said, len(said) == 1 and "verdict=yours already" in said[0])
    yield equal("then it succeeded", row and [row["state"], row["attempt"], attempts(row)], ["SUCCEEDED", 2, [1]])
    yield equal("its body was started twice, for two attempts", record.starts("task"), 2)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("retry-locked", "a row that is locked when another attempt is to follow holds its slot, and nothing else")
def locked(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    dispatcher = stage.dispatcher("--slots", "2")
    tasks = {}
    for label in ("stuck", "canceled"):
        tasks[label] = api.accepted("try", label=label, gate=str(gate), ways=["raise", "return"])
        stage.wait_until(lambda label=label: tasks[label] in stage.effects, "the body has started")  # type: ignore[misc]
    with stage.database.session() as holder:
        holder.sql("begin")
        holder.sql("select id from tally.task where id = %(task)s for update", task=tasks["stuck"])
        holder.sql("select tally.cancel_task(%(task)s, false)", task=tasks["canceled"])
        stage.open(gate)
        dispatcher.wait_for("body.raised", times=2)
        dispatcher.wait_for("somebody holds the row of task")
        stage.sql("select state, attempts from tally.task order by id", label="meanwhile")
        holder.sql("commit")
    for each in tasks.values():
        api.follow(each)
    dispatcher.stop()


@locked.must
def _(record: Record) -> Iterator[Claim]:
    meanwhile = record.sql("meanwhile")
    yield equal("meanwhile both are RUNNING", meanwhile, [{"state": "RUNNING", "attempts": None}] * 2)
    stuck, canceled = record.row("stuck"), record.row("canceled")
    yield equal("the locked one went on", stuck and [stuck["state"], attempts(stuck)], ["SUCCEEDED", [1]])
    yield equal("the canceled one did not", canceled and [canceled["state"], canceled["attempts"]], ["CANCELED", None])
    yield equal("its body was started once", record.starts("canceled"), 1)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("waiting-released", "what waits for its time when its dispatcher is killed is released by another, when it comes")
def released(stage: Stage) -> None:
    api = stage.client(stage.web())
    killed = stage.dispatcher()
    task = api.accepted("try", label="task", ways=["again", "return"], after=WAIT_SECONDS)
    await_waiting(stage, task)
    killed.kill()
    stage.sql("select due_at is not null as waits from tally.task", label="waiting")
    other = stage.dispatcher()
    api.follow(task, label="followed")
    other.stop()


@released.must
def _(record: Record) -> Iterator[Claim]:
    row = record.row("task")
    yield equal("it waited when its dispatcher was killed", record.sql("waiting"), [{"waits": True}])
    yield equal("it succeeded, in its second attempt", row and [row["state"], row["attempt"]], ["SUCCEEDED", 2])
    took = record.answers("followed")[-1].ended - record.answer("task").began
    yield within(f"not before its {WAIT_SECONDS} s, and soon after", took, WAIT_SECONDS + 3, WAIT_SECONDS)
    yield equal("its body was started once for each", [attempt for _, attempt in record.begun], [1, 2])
    yield equal("the first dispatcher died of SIGKILL", record.programs["dispatcher"].status, -9)
    yield equal("the second exits with 0", record.programs["dispatcher 2"].status, 0)


@step("waiting-canceled", "what waits for its time is no reason to stay, and a cancel is its end")
def canceled(stage: Stage) -> None:
    api, dispatcher = stage.client(stage.web()), stage.dispatcher()
    task = api.accepted("try", label="task", ways=["again"], after=3600)
    await_waiting(stage, task)
    stage.event("stopping")
    dispatcher.stop()
    stage.event("stopped")
    stage.sql("select state, due_at is not null as waits from tally.task", label="afterwards")
    api.cancel(task, label="canceled")
    api.cancel(task, label="again")


@canceled.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)
    yield within("at once", record.event("stopped")["at"] - record.event("stopping")["at"], 3)
    yield equal("the task waits on", record.sql("afterwards"), [{"state": "QUEUED", "waits": True}])
    statuses = [record.answer(label).status for label in ("canceled", "again")]
    yield equal("canceled, and at its end", statuses, [202, 409])
    row = record.row("task")
    yield equal("with its attempt", row and [row["state"], row["attempt"], attempts(row)], ["CANCELED", 1, [1]])

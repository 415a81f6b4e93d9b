"""What is attempted again after a crash, which a kind has to ask for; and a body in a process of its own."""

import threading
from collections import Counter
from collections.abc import Iterator
from random import Random

from evidence.client import Client
from evidence.record import OPEN, Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within
from evidence.steps.retries import attempts, reasons

MOST = 3
LIMIT_SECONDS = 0.5
EXITED = "process exited before worker completion"
STOPPED = "dispatcher stopped before worker completion"
DIED = "worker process killed by SIGKILL"
LIMITED = "time limit of 0.5 s passed"


@step("crash-repeated", "after a SIGKILL a task runs again only where its kind asks for it, and as often as it may")
def repeated(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    repeats = api.accepted("try.repeat", label="repeats", gate=str(gate), ways=["return"])
    does_not = api.accepted("try", label="does not", gate=str(gate), ways=["return"])
    for number in range(1, MOST + 1):
        dispatcher = stage.dispatcher()
        begun = number + 1
        stage.wait_until(lambda begun=begun: len(stage.effects) == begun, "the next attempt has begun")  # type: ignore[misc]
        dispatcher.kill()
    last = stage.dispatcher()
    for each in (repeats, does_not):
        api.follow(each)
    last.stop()


@repeated.must
def _(record: Record) -> Iterator[Claim]:
    repeats, does_not = record.row("repeats"), record.row("does not")
    yield equal("one was run again until it had no attempt left", record.starts("repeats"), MOST)
    yield equal("then it is FAILED", repeats and [repeats["state"], repeats["attempt"]], ["FAILED", MOST])
    yield equal("every attempt ended with its process", [*reasons(repeats), record.reason("repeats")], [EXITED] * MOST)
    yield equal("the other is FAILED", does_not and [does_not["state"], record.reason("does not")], ["FAILED", EXITED])
    yield equal("and was run once, with attempts left", [record.starts("does not"), attempts(does_not)], [1, []])
    yield equal("the last dispatcher exits with 0", list(record.programs.values())[-1].status, 0)


@step("crash-given-up", "at the drain deadline a thread cannot be ended: its next attempt waits for the process's end")
def given_up(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    stopped = stage.dispatcher(env={"TALLY_DRAIN_SECONDS": "3", "TALLY_DRAIN_RESERVE_SECONDS": "2"})
    repeats = api.accepted("try.repeat", label="repeats", gate=str(gate), ways=["return"])
    does_not = api.accepted("try", label="does not", gate=str(gate), ways=["return"])
    stage.wait_until(lambda: len(stage.effects) == 2, "both bodies run")
    stopped.stop()
    stage.sql("select state from tally.task order by id", label="when it had ended")
    other = stage.dispatcher()
    stage.wait_until(lambda: stage.effects.count(repeats) == 2, "the next attempt has begun")
    stage.open(gate)
    for each in (repeats, does_not):
        api.follow(each)
    other.stop()


@given_up.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("the dispatcher exits with 1", record.programs["dispatcher"].status, 1)
    states = [row["state"] for row in record.sql("when it had ended")]
    yield equal("one is left RUNNING, the other FAILED", states, ["RUNNING", "FAILED"])
    row = record.row("repeats")
    yield equal("it succeeded in its second attempt", row and [row["state"], row["attempt"]], ["SUCCEEDED", 2])
    yield equal("the first ended with its process", reasons(row), [EXITED])
    yield equal("the other was stopped", record.reason("does not"), STOPPED)
    yield equal("the next dispatcher exits with 0", record.programs["dispatcher 2"].status, 0)


@step("process-slot-dies", "a body's own process dies: that one task ends, or is attempted again; the others go on")
def dies(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    dispatcher = stage.dispatcher("--slots", "3")
    beside = api.accepted("gate", label="beside", gate=str(gate), text="Go one")
    stage.wait_until(lambda: beside in stage.effects, "the body beside runs")
    for label, kind in (("does not", "try.process"), ("repeats", "try.process.repeat")):
        api.follow(api.accepted(kind, label=label, ways=["die", "return"]))
    stage.open(gate)
    api.follow(beside)
    dispatcher.stop()


@dies.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("the one says which signal", record.reason("does not"), DIED)
    yield equal("and was run once", record.starts("does not"), 1)
    row = record.row("repeats")
    yield equal("the other ran again", row and [row["state"], row["attempt"]], ["SUCCEEDED", 2])
    yield equal("its first attempt says the same", reasons(row), [DIED])
    yield equal("what ran beside them succeeded", record.state("beside"), "SUCCEEDED")
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("time-limit", "a body in a process is stopped at its time limit, and is attempted again once it has ended")
def limited(stage: Stage) -> None:
    api, dispatcher = stage.client(stage.web()), stage.dispatcher(env={"TALLY_STOP_GRACE_SECONDS": "1"})
    task = api.accepted("try.limited", label="task", ways=["stay"], seconds=60)
    api.follow(task, label="followed")
    dispatcher.stop()


@limited.must
def _(record: Record) -> Iterator[Claim]:
    row = record.row("task")
    yield equal("FAILED after two attempts", row and [row["state"], row["attempt"]], ["FAILED", 2])
    yield equal("each ended at its limit", [*reasons(row), record.reason("task")], [LIMITED] * 2)
    took = record.answers("followed")[-1].ended - record.answer("task").began
    yield within("long before a body's minute was over", took, 15, 2 * LIMIT_SECONDS)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


WAYS = (["return"], ["raise", "return"], ["raise"], ["again", "stay"], ["stay", "return"], ["stay"])
IN_A_PROCESS = (*WAYS, ["die"], ["die", "stay", "return"])
KINDS = {
    "try": WAYS,
    "try.repeat": WAYS,
    "try.process": IN_A_PROCESS,
    "try.process.repeat": IN_A_PROCESS,
    "try.limited": IN_A_PROCESS,
}


def _submit(api: Client, chance: Random, stop: threading.Event) -> None:
    while not stop.wait(chance.uniform(0.01, 0.06)):
        kind = chance.choice(sorted(KINDS))
        ways, seconds = chance.choice(KINDS[kind]), chance.uniform(0, 1)
        answer = api.submit(kind, label="load", ways=ways, seconds=seconds, after=chance.choice([0, 0.2, 1]))
        if answer.task_id and chance.random() < 0.05:
            api.cancel(answer.task_id)


@step(
    "attempts-killed",
    "SIGKILL at random moments with retries, time limits and processes in use: every attempt is accounted for",
    last=True,
)
def killed(stage: Stage) -> None:
    chance, stop = Random(stage.seed), threading.Event()
    api = stage.client(stage.web(), timeout=10)
    dispatchers = [stage.dispatcher(), stage.dispatcher()]
    threads = [
        threading.Thread(target=_submit, args=(api, Random(f"{stage.seed} {number}"), stop)) for number in range(4)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(max(4, stage.kills // 8)):
            threading.Event().wait(chance.uniform(0.05, 1.2))
            dispatchers.pop(chance.randrange(2)).kill()
            dispatchers.append(stage.dispatcher(until=""))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    stage.await_all(60)
    stage.event("stopped", statuses=[each.stop() for each in dispatchers])


@killed.must
def _(record: Record) -> Iterator[Claim]:
    """Beside what the ledger of every step says of attempts."""
    yield equal("no task is open", [row["id"] for row in record.tasks if row["state"] in OPEN], [])
    yield equal("none has had more attempts than it may", max(row["attempt"] for row in record.tasks), MOST)
    again = [row["kind"] for row in record.tasks if {EXITED, DIED} & set(reasons(row))]
    yield Claim(
        "what crashed and ran again asked for it", dict(Counter(again)), {each[-7:] for each in again} == {".repeat"}
    )
    ends = Counter(row["state"] if row["error"] is None else row["error"]["reason"] for row in record.tasks)
    yield Claim("how the tasks ended", dict(ends), {"SUCCEEDED", EXITED, DIED, LIMITED} <= ends.keys())
    yield equal("the last two dispatchers stopped with 0", record.event("stopped")["statuses"], [0, 0])

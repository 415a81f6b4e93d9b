"""A running task canceled: accepted is not ended, and the slot is taken until the body has really ended."""

from collections.abc import Iterator
from signal import SIGTERM

from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step

SEEN = "select state, cancel_requested_at is not null as cancel_requested from tally.task where id = %(task)s"


@step("cancel-running", "a cancel of a running task is 202 and frees no slot; it ends CANCELED when its body has ended")
def canceled(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    stage.dispatcher("--slots", "1")
    task = api.accepted("gate", label="held", gate=str(gate), text="Go one")
    stage.wait_until(lambda: stage.effects == [task], "the body has started")
    api.cancel(task, label="asked")
    behind = api.accepted("echo", label="behind")
    stage.sql(SEEN, task=task, label="asked, in SQL")
    api.cancel(task, label="asked again")
    # Five sweeps: time enough to be claimed, were there a slot.
    stage.wait(1)
    stage.sql(SEEN, task=behind, label="behind, in SQL")
    stage.open(gate)
    api.follow(task, label="followed")
    api.follow(behind)
    api.cancel(task, label="too late")


@canceled.must
def _(record: Record) -> Iterator[Claim]:
    for label in ("asked", "asked again"):
        yield equal(f"{label}: 202", record.answer(label).status, 202)
    still = [{"state": "RUNNING", "cancel_requested": True}]
    yield equal("in SQL it is still RUNNING, with the cancel requested", record.sql("asked, in SQL"), still)
    waiting = [{"state": "QUEUED", "cancel_requested": False}]
    yield equal("its slot was not free for the next", record.sql("behind, in SQL"), waiting)
    yield from _ends_canceled(record)
    opened = record.event("gate opened")["at"]
    yield Claim("it was read as ended only after the gate", opened, record.answers("followed")[-1].ended > opened)
    yield equal("the one behind it then ran", record.state("behind"), "SUCCEEDED")
    yield equal("a cancel after the end is 409", record.answer("too late").status, 409)


@step("cancel-running-drained", "a dispatcher that stops at that moment waits for the body, and exits with 0")
def drained(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    dispatcher = stage.dispatcher()
    task = api.accepted("gate", label="held", gate=str(gate), text="Go one")
    stage.wait_until(lambda: stage.effects == [task], "the body has started")
    api.cancel(task, label="asked")
    dispatcher.send(SIGTERM)
    dispatcher.wait_for("dispatcher.draining")
    stage.sql(SEEN, task=task, label="draining, in SQL")
    stage.open(gate)
    dispatcher.wait()


@drained.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("the cancel is 202", record.answer("asked").status, 202)
    still = [{"state": "RUNNING", "cancel_requested": True}]
    yield equal("while it drains the task is RUNNING in SQL", record.sql("draining, in SQL"), still)
    dispatcher = record.programs["dispatcher"]
    yield equal("it exits with 0", dispatcher.status, 0)
    opened = record.event("gate opened")["at"]
    yield Claim(
        "it waited for the body", [opened, dispatcher.ended], bool(dispatcher.ended and dispatcher.ended > opened)
    )
    yield from _ends_canceled(record)


def _ends_canceled(record: Record) -> Iterator[Claim]:
    row = record.row("held")
    seen = row and [row["state"], row["result"], row["error"]]
    expected = ["CANCELED", None, {"reason": "canceled", "detail": "returned"}]
    yield equal("it ends CANCELED, what its body returned is not kept", seen, expected)
    yield equal("its body was started once", record.starts("held"), 1)

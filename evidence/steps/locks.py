"""A row that another session holds locked while its body ends: for 10 s, and for minutes."""

import time
from collections.abc import Iterator

from evidence.record import Record
from evidence.spans import most_at_once
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within

SHORT_SECONDS, LONG_SECONDS = 10, 180
SOON = 1.5
TOGETHER = 12


def _locked(stage: Stage, seconds: float) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    dispatcher = stage.dispatcher("--slots", "2")
    stuck = api.accepted("gate", label="stuck", gate=str(gate), text="Go one")
    api.await_state(stuck, "RUNNING")
    with stage.database.session() as holder:
        holder.sql("begin")
        holder.sql("select id from tally.task where id = %(task)s for update", task=stuck)
        stage.event("locked")
        began = time.monotonic()
        stage.open(gate)
        dispatcher.wait_for(f"somebody holds the row of task {stuck}")
        for each in [api.accepted("sleep", label="together", seconds=0.05) for _ in range(TOGETHER)]:
            api.follow(each)
        number = 0
        while time.monotonic() - began < seconds:
            number += 1
            api.follow(api.accepted("echo", label=f"other {number}"), label=f"other {number}, followed")
            # The time that the row stays locked is the fault.
            stage.wait(1)
        stage.sql("select state, result from tally.task where id = %(task)s", task=stuck, label="at the end")
        stage.event("released", others=number)
        holder.sql("commit")
    api.follow(stuck, label="released")
    dispatcher.stop()


def _claims(record: Record, seconds: float) -> Iterator[Claim]:
    released = record.event("released")
    held = released["at"] - record.event("locked")["at"]
    yield Claim(f"the row was locked for {seconds} s", held, seconds <= held <= seconds + 5)
    yield equal("all the while it was RUNNING", record.sql("at the end"), [{"state": "RUNNING", "result": None}])
    together = [row for row in record.tasks if row["id"] in {each.task_id for each in record.answers("together")}]
    yield equal("one slot of two was held: one at a time", most_at_once(together), 1)
    labels = [f"other {number + 1}" for number in range(released["others"])]
    states = {record.state(label) for label in labels}
    yield equal(f"{len(labels)} others, one a second, succeeded", states, {"SUCCEEDED"})
    longest = max(record.answers(f"{each}, followed")[-1].ended - record.answer(each).began for each in labels)
    yield within(f"none was held up: at its end within {SOON:g} s", longest, SOON)
    row = record.row("stuck")
    yield equal("then the true result was written", row and [row["state"], row["result"]], ["SUCCEEDED", {"words": 2}])
    yield within(f"within {SOON:g} s of the release", record.answers("released")[-1].ended - released["at"], SOON)
    yield equal("its body was started once", record.starts("stuck"), 1)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)
    yield equal("nobody was declared dead", [each["stopped_why"] for each in record.dispatchers], ["left"])


@step(
    "finish-locked", "a row locked for 10 s holds its slot and nothing else; its true result is written", alongside=True
)
def locked(stage: Stage) -> None:
    _locked(stage, SHORT_SECONDS)


@locked.must
def _(record: Record) -> Iterator[Claim]:
    yield from _claims(record, SHORT_SECONDS)


@step("finish-locked-for-minutes", "the same, with the row locked for 3 minutes", alongside=True)
def locked_for_minutes(stage: Stage) -> None:
    _locked(stage, LONG_SECONDS)


@locked_for_minutes.must
def _(record: Record) -> Iterator[Claim]:
    yield from _claims(record, LONG_SECONDS)

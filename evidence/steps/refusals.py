"""A claim that the database refuses, and then it refuses to write that it did."""

from collections.abc import Iterator
from statistics import median

from evidence import tries
from evidence.record import Record
from evidence.spans import most_at_once
from evidence.stage import Stage
from evidence.step import Claim, equal, step

LEAST, MOST, TRY = 0.025, 0.25, 2.0
"""Seconds between two tries, and of one."""
SLACK = 1.0
"""For a busy machine."""
OTHERS = 12


@step(
    "refusal-refused",
    "writing that a claim was refused is tried every 25 to 250 ms, holds one slot, and is written once it can be",
)
def refused(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("claim_refuse"):
        with stage.database.fault("refusal_refuse"):
            bad = api.accepted("echo", label="bad", claim_refuse="not this one", refusal_refuse="nor that")
            dispatcher = stage.dispatcher("--slots", "2")
            dispatcher.wait_for("write.failed tries=1 ")
            for each in [api.accepted("sleep", label=f"other {n}", seconds=0.05) for n in range(OTHERS)]:
                api.follow(each)
            dispatcher.wait_for("write.failed tries=16 ")
            stage.sql("select state, attempt from tally.task where id = %(task)s", task=bad, label="refused")
            tries.keep(stage, dispatcher, "outcomes-2")
        api.follow(bad)
        for each in [api.accepted("sleep", label=f"later {n}", seconds=0.3) for n in range(4)]:
            api.follow(each)
        dispatcher.stop()


@refused.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("while refused it is as it was", record.sql("refused"), [{"state": "QUEUED", "attempt": 0}])
    gaps = tries.gaps(tries.errors(record))
    yield Claim("it was tried 16 times and more", len(gaps) + 1, len(gaps) >= 15)
    yield Claim("no two tries within 25 ms", min(gaps), min(gaps) >= LEAST - 0.001)
    yield Claim("of two tries half within 250 ms", median(gaps), median(gaps) <= MOST)
    yield Claim("all within 250 ms and the 2 s that a try may take", max(gaps), max(gaps) <= MOST + TRY)
    others = [row for n in range(OTHERS) if (row := record.row(f"other {n}"))]
    yield equal("the others ran", [row["state"] for row in others], ["SUCCEEDED"] * OTHERS)
    yield equal("one slot of two was held: one at a time", most_at_once(others), 1)
    row = record.row("bad")
    error = {"reason": "worker could not claim task", "detail": "not this one"}
    yield equal("then it is written", row and [row["state"], row["error"]], ["FAILED", error])
    later = [row for n in range(4) if (row := record.row(f"later {n}"))]
    yield equal("the slot is free again: two at a time", most_at_once(later), 2)
    yield equal("its body was never started", record.starts("bad"), 0)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("refusal-refused-canceled", "the tries stop at a cancel, and what is terminal already is not overwritten")
def canceled(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("claim_refuse"):
        with stage.database.fault("refusal_refuse"):
            bad = api.accepted("echo", label="bad", claim_refuse="not this one", refusal_refuse="nor that")
            dispatcher = stage.dispatcher("--slots", "1")
            dispatcher.wait_for("write.failed tries=4 ")
            api.cancel(bad, label="cancel")
            api.get(f"/tasks/{bad}", label="canceled")
            dispatcher.wait_for("task.refused")
            # The only slot is free again, or this one would wait.
            api.follow(api.accepted("echo", label="next"))
        tries.keep(stage, dispatcher, "outcomes-2")
        dispatcher.stop()
    api.get(f"/tasks/{bad}", label="at the end")


@canceled.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("the cancel is 202", record.answer("cancel").status, 202)
    ends = [record.answer(label).json for label in ("canceled", "at the end")]
    yield equal("the task is CANCELED", [each["state"] for each in ends], ["CANCELED"] * 2)
    yield equal("and stays exactly so", ends[1], ends[0])
    said = [line for line in record.programs["dispatcher"].stdout.splitlines() if "task.refused" in line]
    yield Claim("the write came late", said, len(said) == 1 and "verdict=late" in said[0])
    yield equal("the slot is free again", record.state("next"), "SUCCEEDED")
    yield equal("its body was never started", record.starts("bad"), 0)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("refusal-refused-drained", "no try takes more than 2 s; they stop at SIGTERM: the task stays QUEUED, exit 0")
def drained(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("claim_refuse"), stage.database.fault("refusal_delay"):
        bad = api.accepted("echo", label="bad", claim_refuse="not this one", refusal_delay=60)
        dispatcher = stage.dispatcher()
        dispatcher.wait_for("write.failed tries=2 ")
        dispatcher.stop()
        tries.keep(stage, dispatcher, "outcomes-2")
        stage.sql("select state, attempt, error from tally.task where id = %(task)s", task=bad, label="left")


@drained.must
def _(record: Record) -> Iterator[Claim]:
    lines = tries.errors(record)
    timeouts = [line for line in lines if "canceling statement due to statement timeout" in line]
    yield Claim("every try ended by its time", lines, timeouts == lines and len(lines) >= 2)
    longest = max(tries.gaps(lines))
    yield Claim("after 2 s, and a wait of 250 ms at most", longest, TRY < longest <= TRY + MOST + SLACK)
    dispatcher = record.programs["dispatcher"]
    yield equal("SIGTERM ends it with 0", dispatcher.status, 0)
    asked = next(each["at"] for each in record.events("signal") if each["to"] == "dispatcher")
    took = (dispatcher.ended or 0) - asked
    yield Claim("as soon as the try under way has ended", took, took <= TRY + MOST + SLACK)
    left = [{"state": "QUEUED", "attempt": 0, "error": None}]
    yield equal("the task is as it was", record.sql("left"), left)
    yield equal("its body was never started", record.effects, [])

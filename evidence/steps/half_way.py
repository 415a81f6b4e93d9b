"""Transactions that end half-way, their rows written and not committed: nothing of them is left."""

import threading
from collections.abc import Iterator

from evidence.backends import asleep, terminate
from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step

THREE = ("first", "second", "third")
ROWS = "select state, claimed_by, attempt, result from tally.task where id = any (%(tasks)s) order by id"


@step("half-way-failures", "a submit, a claim and a finish whose transaction fails half-way leave nothing of theirs")
def half_way(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("half_way"):
        lost = {"label": "lost", "half_way": "QUEUED", "half_way_seconds": 1.2}
        submit = threading.Thread(target=api.submit, args=("echo",), kwargs=lost)
        submit.start()
        terminate(stage, asleep(stage, "tally-web%"), "submit ended")
        submit.join()

        claimed = [
            api.accepted("echo", label=f"claimed, {each}", half_way="RUNNING", half_way_seconds=0.6) for each in THREE
        ]
        dispatcher = stage.dispatcher()
        loop = f"tally:{dispatcher.dispatcher}:loop"
        ended = asleep(stage, loop)
        terminate(stage, ended, "claim ended")
        asleep(stage, loop, other=ended)
        stage.sql(ROWS, tasks=claimed, label="after the claim")
        for each in claimed:
            api.follow(each)

        gate = stage.gate()
        given = {"gate": str(gate), "text": "Go one", "half_way": "SUCCEEDED", "half_way_seconds": 0.6}
        finished = [api.accepted("gate", label=f"finished, {each}", **given) for each in THREE]
        stage.wait_until(lambda: set(finished) <= set(stage.effects), "all three bodies run")
        stage.open(gate)
        ended = asleep(stage, "tally:%:outcomes")
        terminate(stage, ended, "finish ended")
        asleep(stage, "tally:%:outcomes%", other=ended)
        stage.sql(ROWS, tasks=finished, label="after the finish")
        for each in finished:
            api.follow(each)
        dispatcher.stop()


@half_way.must
def _(record: Record) -> Iterator[Claim]:
    for label in ("submit ended", "claim ended", "finish ended"):
        yield equal(f"{label} half-way, by its backend's end", record.sql(label), [{"ended": True}])
    yield equal("the submit is 503", record.answer("lost").status, 503)
    yield equal("and has no row", record.row("lost"), None)
    yield equal(
        "of the claim nothing is left",
        record.sql("after the claim"),
        [{"state": "QUEUED", "claimed_by": None, "attempt": 0, "result": None}] * 3,
    )
    left = [[row["state"], row["attempt"], row["result"]] for row in record.sql("after the finish")]
    yield equal("of the finish nothing is left", left, [["RUNNING", 1, None]] * 3)
    labels = [f"{what}, {each}" for what in ("claimed", "finished") for each in THREE]
    yield equal("all were claimed and finished later", [record.state(each) for each in labels], ["SUCCEEDED"] * 6)
    yield equal("with one start each", [record.starts(each) for each in labels], [1] * 6)
    results = [row and row["result"] for row in (record.row(f"finished, {each}") for each in THREE)]
    yield equal("with the true results", results, [{"words": 2}] * 3)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)

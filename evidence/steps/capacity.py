"""A queue with room for two, and a claim that takes its time."""

from collections.abc import Iterator

from evidence.backends import asleep
from evidence.client import Client
from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step


def _filled(stage: Stage) -> tuple[Client, int, int]:
    """One slot whose claim is under way, and one task behind it; the ids of both."""
    stage.max_open(2)
    api = stage.client(stage.web())
    stage.dispatcher("--slots", "1")
    claimed = api.accepted("echo", label="first", claim_delay=1.5)
    asleep(stage, "tally:%:loop")
    return api, claimed, api.accepted("echo", label="second")


@step("queue-full", "with the claim delayed and room for one more, a third submit is 503 and has no row")
def full(stage: Stage) -> None:
    with stage.database.fault("claim_delay"):
        api, first, second = _filled(stage)
        api.submit("echo", label="third")
        stage.sql("select id, state from tally.task order by id", label="while full")
        api.follow(first)
        api.follow(second)


@full.must
def _(record: Record) -> Iterator[Claim]:
    answers = [record.answer(label).status for label in ("first", "second", "third")]
    yield equal("202, 202, 503", answers, [202, 202, 503])
    yield equal("the third is refused for the queue", record.answer("third").code, "overloaded")
    yield equal("Retry-After is there", "Retry-After" in record.answer("third").headers, True)
    yield equal("the third has no row", record.row("third"), None)
    yield equal("two were open then", [row["state"] for row in record.sql("while full")], ["QUEUED", "QUEUED"])
    yield equal("both others ended", [record.state("first"), record.state("second")], ["SUCCEEDED", "SUCCEEDED"])


@step("cancel-queued", "a queued task is canceled once, and never computed; a terminal one can't be canceled")
def canceled(stage: Stage) -> None:
    with stage.database.fault("claim_delay"):
        api, first, second = _filled(stage)
        api.cancel(second, label="once")
        api.follow(second, label="read")
        api.cancel(second, label="twice")
        api.follow(first)
        api.cancel(first, label="finished")


@canceled.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("the first cancel is 202", record.answer("once").status, 202)
    yield equal("then it is CANCELED", record.answers("read")[-1].json["state"], "CANCELED")
    for label in ("twice", "finished"):
        yield equal(
            f"{label}: 409", [record.answer(label).status, record.answer(label).code], [409, "already-terminal"]
        )
    yield equal("its body was never started", record.starts("second"), 0)
    row = record.row("second")
    yield equal("it has no result and no claim", row and [row["result"], row["attempt"]], [None, 0])
    yield equal("the other one is as it was", record.state("first"), "SUCCEEDED")

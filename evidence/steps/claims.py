"""Two who claim at once, and one task whose claim cannot be: the others are not kept from running."""

from collections.abc import Iterator

from evidence.backends import asleep
from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step

TOGETHER = 40


@step("two-claimers", "of two dispatchers at one row one gets it, the other passes over it, and no body starts twice")
def two(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("claim_delay"):
        for _ in range(2):
            stage.dispatcher("--slots", "1")
        contested = api.accepted("echo", label="contested", claim_delay=1.7)
        asleep(stage, "tally:%:loop")
        api.follow(api.accepted("echo", label="behind it"))
        stage.sql("select state from tally.task where id = %(task)s", task=contested, label="meanwhile")
        api.follow(contested)
    for each in [api.accepted("echo", label="many") for _ in range(TOGETHER)]:
        api.follow(each)


@two.must
def _(record: Record) -> Iterator[Claim]:
    first, second = record.row("contested"), record.row("behind it")
    holders = [row and row["claimed_by"] for row in (first, second)]
    yield Claim("the other one took what was behind it", holders, None not in holders and holders[0] != holders[1])
    yield equal("while the first claim was under way", record.sql("meanwhile"), [{"state": "QUEUED"}])
    yield equal("each was claimed once", [row and row["attempt"] for row in (first, second)], [1, 1])
    yield equal("each body was started once", [record.starts("contested"), record.starts("behind it")], [1, 1])
    many = [row for row in record.tasks if row["id"] in {each.task_id for each in record.answers("many")}]
    yield equal(f"{TOGETHER} more succeeded", [row["state"] for row in many], ["SUCCEEDED"] * TOGETHER)
    yield equal("each of them was started once", sorted(record.effects), sorted(row["id"] for row in record.tasks))


@step("claim-refused", "one task of a batch cannot be claimed: it alone is FAILED, unstarted, and the others run")
def refused(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("claim_refuse"):
        good = [api.accepted("echo", label=f"good {number}") for number in range(3)]
        bad = api.post("/tasks", '{"text": "Go one", "claim_refuse": "not this one"}', label="bad").task_id or 0
        good += [api.accepted("echo", label=f"good {number}") for number in range(3, 6)]
        dispatcher = stage.dispatcher("--slots", "8")
        for each in (bad, *good):
            api.follow(each)
        stage.sql("select state, words, bytes, runes from tally.text_stats", label="statistics")
        dispatcher.stop()


@refused.must
def _(record: Record) -> Iterator[Claim]:
    row = record.row("bad")
    error = {"reason": "worker could not claim task", "detail": "not this one"}
    yield equal("it is FAILED, for the reason given", row and [row["state"], row["error"]], ["FAILED", error])
    yield equal("it was never claimed", row and [row["attempt"], row["claimed_by"], row["started_at"]], [0, None, None])
    zeros = [{"state": "FAILED", "words": 0, "bytes": 0, "runes": 0}]
    yield equal("its statistics are zeros", record.sql("statistics"), zeros)
    yield equal("the others succeeded", [record.state(f"good {each}") for each in range(6)], ["SUCCEEDED"] * 6)
    yield equal("only their bodies were started", len(record.effects), 6)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("claim-slow", "a claim that takes longer than 2 s is set aside, the others run, and it is made when it can be")
def slow(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("claim_delay"):
        good = [api.accepted("echo", label="before it")]
        stuck = api.accepted("echo", label="slow", claim_delay=60)
        good.append(api.accepted("echo", label="after it"))
        dispatcher = stage.dispatcher("--slots", "4")
        dispatcher.wait_for(f"claim.set_aside task={stuck} ")
        for each in good:
            api.follow(each)
        api.follow(api.accepted("echo", label="later"))
        stage.sql("select state, attempt from tally.task order by id", label="set aside")
    api.follow(stuck)


@slow.must
def _(record: Record) -> Iterator[Claim]:
    said = record.programs["dispatcher"].stdout
    expected = "canceling statement due to statement timeout"
    line = next((line for line in said.splitlines() if "claim.set_aside" in line), "")
    yield Claim("it ran out of its 2 s and was set aside", line, expected in line)
    seen = [[row["state"], row["attempt"]] for row in record.sql("set aside")]
    done, as_it_was = ["SUCCEEDED", 1], ["QUEUED", 0]
    yield equal("meanwhile it is as it was, and the others succeeded", seen, [done, as_it_was, done, done])
    yield equal("it succeeded when it could", record.state("slow"), "SUCCEEDED")
    labels = ["before it", "slow", "after it", "later"]
    yield equal("each was started once", [record.starts(label) for label in labels], [1] * 4)

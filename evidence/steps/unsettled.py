"""A claim whose connection is lost, so that nobody knows whether it was made: settled, and started once."""

import re
from collections.abc import Iterator
from signal import SIGTERM

from evidence.backends import asleep, terminate
from evidence.client import Client
from evidence.programs import Program
from evidence.proxy import Proxy
from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step

THREE = ("first", "second", "third")
ROWS = "select state, attempt from tally.task order by id"
LOOP = "tally:%:loop"


def _three(api: Client) -> list[int]:
    """Three tasks that are claimed together, by a transaction that takes a while to commit."""
    slow = {"half_way": "RUNNING", "half_way_seconds": 1.2}
    return [api.accepted("echo", label=each, **(slow if each == THREE[0] else {})) for each in THREE]


def _settled(record: Record) -> list[int]:
    """Of how many tasks each claim was found to be, that had to be settled."""
    return [
        int(each) for each in re.findall(r"claim\.settled number=\d+ tasks=(\d+)", record.programs["dispatcher"].stdout)
    ]


def _ended_well(record: Record) -> Iterator[Claim]:
    yield equal("all succeeded", [record.state(each) for each in THREE], ["SUCCEEDED"] * 3)
    yield equal("after one claim", [row["attempt"] for row in record.tasks], [1] * 3)
    yield equal("and one start each", [record.starts(each) for each in THREE], [1] * 3)
    yield equal("the dispatcher exits with 0", record.programs["dispatcher"].status, 0)


@step("claim-cut-off-before-commit", "a claim whose connection dies before its commit is made later, and started once")
def before(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("half_way"):
        tasks = _three(api)
        dispatcher = stage.dispatcher()
        ended = asleep(stage, LOOP)
        terminate(stage, ended, "ended")
        asleep(stage, LOOP, other=ended)
        stage.sql(ROWS, label="cut off")
        for each in tasks:
            api.follow(each)
        dispatcher.stop()


@before.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("its backend was ended", record.sql("ended"), [{"ended": True}])
    yield equal("the claim was settled: of nothing", _settled(record), [0])
    yield equal("nothing was claimed", record.sql("cut off"), [{"state": "QUEUED", "attempt": 0}] * 3)
    yield from _ended_well(record)


def _committed_unanswered(stage: Stage, api: Client, proxy: Proxy) -> tuple[Program, list[int]]:
    """Let a claim be committed while no reply comes through."""
    tasks = _three(api)
    dispatcher = stage.dispatcher(env={"DATABASE_URL": proxy.url})
    asleep(stage, LOOP)
    proxy.mute()
    for each in tasks:
        api.await_state(each, "RUNNING")
    stage.sql(ROWS, label="unanswered")
    stage.event("bodies started", tasks=stage.effects)
    return dispatcher, tasks


@step("claim-cut-off-after-commit", "a claim that was committed and never answered is settled, and started once")
def after(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("half_way"), stage.proxy() as proxy:
        dispatcher, tasks = _committed_unanswered(stage, api, proxy)
        proxy.cut()
        for each in tasks:
            api.follow(each)
        dispatcher.stop()


@after.must
def _(record: Record) -> Iterator[Claim]:
    unanswered = record.sql("unanswered")
    yield equal("it was committed", unanswered, [{"state": "RUNNING", "attempt": 1}] * 3)
    yield equal("and nothing was started on it", record.event("bodies started")["tasks"], [])
    yield equal("it was settled: of all three", sum(_settled(record)), 3)
    yield from _ended_well(record)


@step(
    "claim-unsettled-drained",
    "SIGTERM while a claim is unsettled: what it took is begun and finished before the exit with 0",
)
def drained(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("half_way"), stage.proxy() as proxy:
        dispatcher, _ = _committed_unanswered(stage, api, proxy)
        dispatcher.send(SIGTERM)
        proxy.cut()
        dispatcher.wait()
        stage.sql(ROWS, label="left")


@drained.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("it was committed", record.sql("unanswered"), [{"state": "RUNNING", "attempt": 1}] * 3)
    yield equal("and nothing was started on it", record.event("bodies started")["tasks"], [])
    asked = next(each["at"] for each in record.events("signal") if each["to"] == "dispatcher")
    cut = record.events("network cut")[0]["at"]
    yield Claim("SIGTERM came before it could be settled", [asked, cut], asked < cut)
    yield equal("no row is left claimed", record.sql("left"), [{"state": "SUCCEEDED", "attempt": 1}] * 3)
    yield from _ended_well(record)


@step("claim-frozen", "the server frozen in the middle of a claim and thawed later: claimed and started once")
def frozen(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("half_way"):
        tasks = _three(api)
        dispatcher = stage.dispatcher()
        asleep(stage, LOOP)
        stage.cluster.freeze()
        dispatcher.wait_for("claim.unsettled")
        stage.event("bodies started", tasks=stage.effects)
        stage.cluster.thaw()
        for each in tasks:
            api.follow(each)
        dispatcher.stop()


@frozen.must
def _(record: Record) -> Iterator[Claim]:
    said = record.programs["dispatcher"].stdout
    yield Claim("the claim was given up as unsettled", said.count("claim.unsettled"), "claim.unsettled" in said)
    yield equal("nothing was started meanwhile", record.event("bodies started")["tasks"], [])
    settled = _settled(record)
    yield Claim("it was settled: of all three or of nothing", settled, sum(settled) in (0, 3) and bool(settled))
    yield from _ended_well(record)


@step("claim-frozen-drained", "the same, and SIGTERM before it thaws: exit 0, and no row is left claimed")
def frozen_drained(stage: Stage) -> None:
    api = stage.client(stage.web())
    with stage.database.fault("half_way"):
        _three(api)
        dispatcher = stage.dispatcher(env={"TALLY_DRAIN_SECONDS": "20"})
        asleep(stage, LOOP)
        stage.cluster.freeze()
        dispatcher.wait_for("claim.unsettled")
        dispatcher.send(SIGTERM)
        dispatcher.wait_for("dispatcher.draining")
        stage.cluster.thaw()
        dispatcher.wait()
        stage.sql(ROWS, label="left")
        stage.event("bodies started", tasks=stage.effects)
    next_ = stage.dispatcher()
    stage.wait_until(lambda: not stage.sql("select from tally.task where state = 'QUEUED'"), "none waits")
    next_.stop()


@frozen_drained.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("it exits with 0", record.programs["dispatcher"].status, 0)
    asked = next(each["at"] for each in record.events("signal") if each["to"] == "dispatcher")
    thawed = record.event("server thawed")["at"]
    yield Claim("SIGTERM came while the server was frozen", [asked, thawed], asked < thawed)
    states = [row["state"] for row in record.sql("left")]
    yield Claim("no row is left claimed", states, states in (["QUEUED"] * 3, ["SUCCEEDED"] * 3))
    begun = record.event("bodies started")["tasks"]
    yield equal("only what succeeded was started", len(begun), states.count("SUCCEEDED"))
    yield equal("all succeeded in the end", [record.state(each) for each in THREE], ["SUCCEEDED"] * 3)
    yield equal("with one start each", [record.starts(each) for each in THREE], [1] * 3)

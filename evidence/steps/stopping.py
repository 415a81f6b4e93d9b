"""Stopping in good order."""

from collections.abc import Iterator
from signal import SIGTERM

from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step


@step(
    "drained-and-restarted",
    "SIGTERM waits for the bodies, exits with 0, and the same addresses and ids are there at once",
)
def drained(stage: Stage) -> None:
    web, dispatcher = stage.web(), stage.dispatcher()
    api, gate = stage.client(web), stage.gate()
    done = api.accepted("echo", label="done")
    api.follow(done)
    running = api.accepted("gate", label="running", gate=str(gate), text="Go one")
    api.await_state(running, "RUNNING")
    web.stop()
    dispatcher.send(SIGTERM)
    dispatcher.wait_for("dispatcher.draining")
    stage.sql("select state from tally.task where id = %(id)s", id=running, label="HTTP is closed")
    stage.open(gate)
    dispatcher.wait()
    listen, admin = (f"{host}:{port}" for host, port in (web.address, web.admin))
    stage.dispatcher()
    again = stage.client(stage.web("--listen", listen, "--admin", admin))
    again.get(f"/tasks/{done}", label="old id")
    again.get(f"/tasks/{running}", label="drained id")
    again.follow(again.accepted("echo", label="new"))


@drained.must
def _(record: Record) -> Iterator[Claim]:
    statuses = {name: record.programs[name].status for name in ("web", "dispatcher")}
    yield equal("both exit with 0", statuses, {"web": 0, "dispatcher": 0})
    yield equal("HTTP closed is not workers done", record.sql("HTTP is closed"), [{"state": "RUNNING"}])
    yield equal("the running one was waited for", record.row("running") and record.state("running"), "SUCCEEDED")
    for label in ("old id", "drained id"):
        answer = record.answer(label)
        yield equal(f"{label}: 200, SUCCEEDED", [answer.status, answer.json["state"]], [200, "SUCCEEDED"])
    opened = record.event("gate opened")["at"]
    ended = record.programs["dispatcher"].ended
    yield Claim("the dispatcher ended after the gate opened", [opened, ended], ended is not None and ended > opened)
    yield equal("both addresses were bound again", record.programs["web 2"].stdout.count("ready web"), 1)

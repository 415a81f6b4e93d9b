"""Stopping while something is wrong: gone by the deadline, and no exit status 0 with a row RUNNING."""

from collections.abc import Callable, Iterator
from signal import SIGCONT, SIGINT, SIGSTOP, SIGTERM

from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within

EXITED = "process exited before worker completion"
DRAIN = {"TALLY_DRAIN_SECONDS": "2", "TALLY_DRAIN_RESERVE_SECONDS": "1"}
SLACK = 1.0
"""For a busy machine: from the deadline to the end of the process as it is seen here."""
WAYS = ("stopped", "frozen")


@step(
    "drain-without-database",
    "SIGTERM with the database stopped or frozen: gone by the deadline, exit 1 where a task is lost",
)
def without(stage: Stage) -> None:
    away: dict[str, Callable[[], None]] = {
        "stopped": lambda: stage.cluster.stop("immediate"),
        "frozen": stage.cluster.freeze,
    }
    for way in WAYS:
        web, dispatcher = stage.web(env=DRAIN), stage.dispatcher(env=DRAIN)
        api = stage.client(web)
        task = api.accepted("sleep", label=f"{way}: running", seconds=600)
        stage.wait_until(lambda task=task: task in stage.effects, "the body has started")  # type: ignore[misc]
        away[way]()
        api.submit("echo", label=f"{way}: refused")
        for program in (web, dispatcher):
            program.send(SIGTERM)
        for program in (web, dispatcher):
            program.wait()
        stage.cluster.thaw()
        stage.cluster.start()
        stage.sql("select state from tally.task where id = %(task)s", task=task, label=f"{way}: left")
    stage.dispatcher()
    stage.await_all()


@without.must
def _(record: Record) -> Iterator[Claim]:
    for number, way in enumerate(WAYS):
        web, dispatcher = (record.programs[f"{name} 2" if number else name] for name in ("web", "dispatcher"))
        yield equal(
            f"{way}: the web had nothing left to answer, the dispatcher lost a task",
            [web.status, dispatcher.status],
            [0, 1],
        )
        asked = min(each["at"] for each in record.events("signal") if each["pid"] in (web.pid, dispatcher.pid))
        ended = max(web.ended or 0, dispatcher.ended or 0)
        yield within(f"{way}: both are gone within 2 s and {SLACK:g} s for a busy machine", ended - asked, 2 + SLACK)
        yield equal(
            f"{way}: the row is RUNNING, as nobody could write", record.sql(f"{way}: left"), [{"state": "RUNNING"}]
        )
        yield equal(f"{way}: the next start settles it", record.reason(f"{way}: running"), EXITED)
        answer = record.answer(f"{way}: refused")
        yield Claim(f"{way}: a submit is refused or unknown", answer.status, answer.status in (503, 504))


@step("drain-three-signals", "three signals within 100 ms end a dispatcher at once, with everything written, and 1")
def three(stage: Stage) -> None:
    api = stage.client(stage.web())
    dispatcher = stage.dispatcher("--slots", "3", env={"TALLY_DRAIN_SECONDS": "600"})
    for label in ("first", "second", "third"):
        api.accepted("sleep", label=label, seconds=600, stubborn=True)
    stage.wait_until(lambda: len(stage.effects) == 3, "every slot runs a body")
    api.accepted("echo", label="queued")
    # Two kinds: the kernel makes one of equal signals that arrive together.
    for number in (SIGTERM, SIGINT, SIGTERM):
        dispatcher.send(number)
    dispatcher.wait()
    stage.sql("select state from tally.task order by id", label="left")


@three.must
def _(record: Record) -> Iterator[Claim]:
    sent = [each["at"] for each in record.events("signal") if each["to"] == "dispatcher"]
    yield within("three signals within 100 ms", sent[2] - sent[0], 0.1)
    dispatcher = record.programs["dispatcher"]
    yield equal("it exits with 1", dispatcher.status, 1)
    yield within("within 3 s, though its drain is ten minutes", (dispatcher.ended or 0) - sent[0], 3)
    yield equal("nothing is left RUNNING", [each["state"] for each in record.sql("left")], ["FAILED"] * 3 + ["QUEUED"])
    reasons = [record.reason(label) for label in ("first", "second", "third")]
    yield equal("the reason", reasons, ["dispatcher stopped before worker completion"] * 3)
    yield equal("what was not claimed is as it was", [record.state("queued"), record.starts("queued")], ["QUEUED", 0])


@step("drain-condemned", "one that is draining, frozen and condemned changes nothing when it thaws, and exits with 1")
def condemned(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    frozen = stage.dispatcher(env={"TALLY_DRAIN_SECONDS": "60"})
    task = api.accepted("gate", label="held", gate=str(gate))
    stage.wait_until(lambda: stage.effects == [task], "the body has started")
    frozen.send(SIGTERM)
    frozen.wait_for("dispatcher.draining")
    stage.dispatcher()
    frozen.send(SIGSTOP)
    terminate = "select pid, pg_terminate_backend(pid) from pg_stat_activity where application_name = %(name)s"
    stage.sql(terminate, name=f"tally:{frozen.dispatcher}:session", label="session ended")
    api.follow(task, label="lost")
    stage.open(gate)
    frozen.send(SIGCONT)
    frozen.wait()
    api.get(f"/tasks/{task}", label="at the end")


@condemned.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("it is FAILED", record.reason("held"), "dispatcher lost before worker completion")
    yield equal("it exits with 1", record.programs["dispatcher"].status, 1)
    lost, end = record.answers("lost")[-1].json, record.answer("at the end").json
    yield equal("what was read before it thawed is what is read after", end, lost)
    yield equal("its body was started once", record.starts("held"), 1)
    mine = [each for each in record.dispatchers if each["stopped_why"] == "lost"]
    yield equal("one dispatcher was condemned, with a proof", [bool(each["stopped_proof"]) for each in mine], [True])

"""A dispatcher's session cut off over and over, and its threads ended one by one."""

import time
from collections.abc import Iterator
from statistics import median

from evidence.client import Client
from evidence.record import Record
from evidence.stage import SETTINGS, Stage
from evidence.step import Claim, equal, step, within

THREADS = ("MainThread", "session", "outcomes", "outcomes-2", "recovery")
GRACE_SECONDS = float(SETTINGS["TALLY_GRACE_SECONDS"])
SAMPLES = 5
TERMINATE = """
select application_name, pg_terminate_backend(pid, 5000) as ended from pg_stat_activity
where datname = current_database() and application_name like 'tally:%:session'
"""


@step(
    "session-terminated",
    "after each loss of its session a dispatcher listens and looks again, and nobody is declared dead",
)
def terminated(stage: Stage) -> None:
    api, gate = stage.client(stage.web()), stage.gate()
    # The sweep is long: only what is heard, or looked for after a reconnect, can start a task.
    never = {"TALLY_SWEEP_SECONDS": "600"}
    both = [stage.dispatcher("--slots", "2", env=never) for _ in range(2)]
    for label in ("held", "held too"):
        api.accepted("gate", label=label, gate=str(gate))
    stage.wait_until(lambda: len(stage.effects) == 2, "bodies run")
    _sample(api, "before")
    rounds, began = 0, time.monotonic()
    while time.monotonic() - began < GRACE_SECONDS + 1:
        listened = [each.count("session.listening") for each in both]
        stage.sql(TERMINATE, label="ended")
        task = api.accepted("echo", label=f"round {rounds}")
        api.follow(task, label=f"round {rounds}, followed")
        for each, times in zip(both, listened, strict=True):
            each.wait_for("session.listening", times=times + 1)
        rounds += 1
    stage.event("rounds", rounds=rounds, seconds=time.monotonic() - began)
    _sample(api, "after")
    stage.open(gate)
    for each in both:
        each.stop()


def _sample(api: Client, when: str) -> None:
    for number in range(SAMPLES):
        api.follow(api.accepted("echo", label=f"{when} {number}"), label=f"{when} {number}, followed")


def _took(record: Record, label: str) -> float:
    """The seconds from a submit to the read that found its end."""
    return record.answers(f"{label}, followed")[-1].ended - record.answer(label).began


@terminated.must
def _(record: Record) -> Iterator[Claim]:
    rounds = record.event("rounds")
    ended = [each.rows for each in record.statements if each.label == "ended"]
    both = [rows for rows in ended if [row["ended"] for row in rows] == [True, True]]
    yield Claim("both sessions were ended over and over", len(both), len(both) == rounds["rounds"] > 1)
    yield Claim(
        "for longer than the grace period", [rounds["seconds"], GRACE_SECONDS], rounds["seconds"] > GRACE_SECONDS
    )
    longest = max(_took(record, f"round {number}") for number in range(rounds["rounds"]))
    yield within("every task meanwhile was at its end within 2 s, the sweep being 600 s", longest, 2)
    before, after = (median(_took(record, f"{when} {n}") for n in range(SAMPLES)) for when in ("before", "after"))
    yield Claim("afterwards tasks are picked up as before", [before, after], after <= before + 0.5)
    yield equal("every task succeeded", sorted({row["state"] for row in record.tasks}), ["SUCCEEDED"])
    yield equal("nobody was declared dead", [each["stopped_why"] for each in record.dispatchers], ["left", "left"])
    statuses = [record.programs[name].status for name in ("dispatcher", "dispatcher 2")]
    yield equal("both exit with 0", statuses, [0, 0])


@step("thread-dies", "a dispatcher that loses one of its threads exits with 1, and the next recovers what it held")
def dies(stage: Stage) -> None:
    api = stage.client(stage.web())
    for thread in THREADS:
        dispatcher = stage.dispatcher("--slots", "2")
        held = api.accepted("sleep", label=f"{thread}: held", seconds=600)
        stage.wait_until(lambda held=held: held in stage.effects, "the body has started")  # type: ignore[misc]
        api.accepted("end_thread", label=f"{thread}: ends it", thread=thread, seconds=600)
        dispatcher.wait()
    stage.dispatcher()
    for each in [row["id"] for row in stage.sql("select id from tally.task order by id")]:
        api.follow(each)


@dies.must
def _(record: Record) -> Iterator[Claim]:
    for number, thread in enumerate(THREADS):
        program = record.programs[f"dispatcher {number + 1}" if number else "dispatcher"]
        yield equal(f"{thread}: the process exits with 1", program.status, 1)
        reasons = [record.reason(f"{thread}: {label}") for label in ("held", "ends it")]
        yield equal(f"{thread}: its tasks are recovered", reasons, ["process exited before worker completion"] * 2)

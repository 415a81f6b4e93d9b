"""Both programs killed while a terminal write is under way, and started again at once.

The two seconds below hold for what is shown here and no more: both programs on one host, a server that is up, a killed
process whose name on this host is free at once, a handful of tasks. docs/faults.md says what they do not cover.
"""

import json
from collections.abc import Iterator

from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step, within

LEFT_BEHIND = """
select pid, state from pg_stat_activity
where datname = current_database() and application_name like 'tally:%' and wait_event = 'PgSleep'
"""
STATISTICS = "select state, words, bytes, runes from tally.text_stats"
# The statement would go on for a minute: whatever happens sooner did not wait for it.
PATIENT = {"TALLY_STATEMENT_SECONDS": "60", "TALLY_STALL_SECONDS": "200"}


@step(
    "killed-and-restarted", "what was RUNNING is FAILED, not run again, and the next is serving within 2 s", last=True
)
def killed(stage: Stage) -> None:
    with stage.database.fault("text_finish_delay"):
        web, dispatcher = stage.web(), stage.dispatcher(env=PATIENT)
        api = stage.client(web)
        task = api.post("/tasks", json.dumps({"text": "Go one"}), label="killed").task_id or 0
        stage.wait_until(lambda: stage.sql(LEFT_BEHIND), "the terminal write is under way")
        stage.sql(STATISTICS, label="before")
        for program in (dispatcher, web):
            program.kill()
        stage.sql(LEFT_BEHIND, label="left behind")
        listen, admin = ("{}:{}".format(*address) for address in (web.address, web.admin))
        stage.event("started again")
        stage.dispatcher(until="", env=PATIENT)
        stage.web("--listen", listen, "--admin", admin)
        new = api.accepted("echo", label="new")
        api.follow(new, label="new, followed")
        api.follow(task, label="killed, followed")
        stage.sql(LEFT_BEHIND, label="left behind at the end")
        stage.sql(STATISTICS, label="after")


@killed.must
def _(record: Record) -> Iterator[Claim]:
    yield equal("it was accepted", record.answer("killed").status, 202)
    running = [{"state": "RUNNING", "words": 0, "bytes": 0, "runes": 0}]
    yield equal("SQL read RUNNING, and zeros", record.sql("before"), running)
    statuses = {name: record.programs[name].status for name in ("web", "dispatcher")}
    yield equal("both died of SIGKILL, which a shell shows as 137", statuses, {"web": -9, "dispatcher": -9})
    yield Claim(
        "a backend was still inside their statement", record.sql("left behind"), bool(record.sql("left behind"))
    )
    failed = [{"state": "FAILED", "words": 0, "bytes": 0, "runes": 0}]
    yield equal("afterwards it is FAILED, with zeros", record.sql("after"), failed)
    yield equal("the reason", record.reason("killed"), "process exited before worker completion")
    row = record.row("killed")
    yield equal("it was not run again", row and row["attempt"], 1)
    yield equal("the backend was ended", record.sql("left behind at the end"), [])
    again = record.event("started again")["at"]
    for label in ("new", "killed"):
        yield within(
            f"{label}: at its end within 2 s of the start", record.answers(f"{label}, followed")[-1].ended - again, 2
        )
    yield equal("the new one succeeded", record.state("new"), "SUCCEEDED")

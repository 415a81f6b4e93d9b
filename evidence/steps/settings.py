"""Settings that no program may start with."""

import socket
from collections.abc import Iterator

from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step


@step("settings-refused", "bad settings end a program with 2, all named, before anything listens")
def refused(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    stage.event("port", port=port)
    stage.web("--listen", f"127.0.0.1:{port}", "--admin", "0.0.0.0:0", until="").wait()
    many = {"PORT": "70000", "TALLY_BEAT_SECONDS": "soon", "TALLY_SLOTS": "0", "TALLY_SLOT": "4"}
    stage.web("--listen", "0.0.0.0:8000", env=many, until="").wait()
    stage.dispatcher(env=many, until="").wait()
    stage.client(("127.0.0.1", port)).get("/tasks/1", label="nobody listens")


@refused.must
def _(record: Record) -> Iterator[Claim]:
    statuses = {name: each.status for name, each in record.programs.items() if "migrate" not in name}
    yield equal("each ends with 2", statuses, {"web": 2, "web 2": 2, "dispatcher": 2})
    yield Claim(
        "an admin address must be loopback", record.programs["web"].stderr, "--admin" in record.programs["web"].stderr
    )
    for name in ("web 2", "dispatcher"):
        said = record.programs[name].stderr
        named = [each for each in ("PORT", "TALLY_BEAT_SECONDS", "TALLY_SLOTS", "TALLY_SLOT:") if each in said]
        yield equal(f"{name} names every problem", named, ["PORT", "TALLY_BEAT_SECONDS", "TALLY_SLOTS", "TALLY_SLOT:"])
    answer = record.answer("nobody listens")
    yield Claim("no address listens", answer.fault, answer.status is None and "refused" in str(answer.fault))
    ready = [name for name, each in record.programs.items() if "ready " in each.stdout]
    yield equal("no program says that it is ready", ready, [])

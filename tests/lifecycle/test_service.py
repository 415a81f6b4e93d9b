"""Both programs together, as their users meet them."""

import subprocess
from pathlib import Path

import pytest

from tests.support.database import Database
from tests.support.http import Client
from tests.support.program import RunDispatcher, RunProgram
from tests.support.waiting import wait_until

LICENCES = Path("/usr/share/common-licenses")


def test_go_one_is_followed_to_its_result_and_found_in_sql(
    database: Database, run_program: RunProgram, run_dispatcher: RunDispatcher
) -> None:
    api = Client(run_program("falcon_app").address)
    run_dispatcher()

    answer = api.post("/tasks", json={"text": "Go one"})

    assert answer.status == 202
    task = answer.json()["id"]
    assert answer.headers["Location"] == f"/tasks/{task}"
    assert api.follow(task)["result"] == {"words": 2, "bytes": 6, "runes": 6}
    assert database.rows("select * from tally.text_stats") == [(task, "SUCCEEDED", 2, 6, 6, False)]


def test_accepted_is_not_succeeded(database: Database, run_program: RunProgram, run_dispatcher: RunDispatcher) -> None:
    api = Client(run_program("falcon_app").address)
    run_dispatcher(env={"TALLY_MAX_WORDS": "3"})

    answer = api.post("/tasks", json={"text": "one two three four"})

    assert answer.status == 202
    end = api.follow(answer.json()["id"])
    assert end["error"]["reason"] == "text has 4 words, the limit is 3"
    assert database.rows("select state, words, bytes, runes from tally.text_stats") == [("FAILED", 0, 0, 0)]


@pytest.mark.skipif(not LICENCES.exists(), reason="there are no licence texts on this machine")
def test_the_licence_texts_are_counted_as_wc_counts_them(
    database: Database, run_program: RunProgram, run_dispatcher: RunDispatcher
) -> None:
    api = Client(run_program("falcon_app").address)
    run_dispatcher()
    texts = sorted({path.resolve() for path in LICENCES.iterdir()})
    tasks = {api.submit(input={"text": path.read_text("utf-8")}).json()["id"]: path for path in texts}

    counted = {path: api.follow(task)["result"] for task, path in tasks.items()}

    for path, result in counted.items():
        printed = subprocess.check_output(["wc", "-w", "-m", "-c", path], env={"LC_ALL": "C.UTF-8"}, text=True)
        words, runes, size = map(int, printed.split()[:3])
        assert result == {"words": words, "bytes": size, "runes": runes}, path
    rows = database.rows("select id, words, bytes, runes from tally.text_stats order by id")
    assert [
        (task, counted[path]["words"], counted[path]["bytes"], counted[path]["runes"])
        for task, path in sorted(tasks.items())
    ] == rows


def test_a_canceled_running_task_keeps_its_slot_until_the_body_has_ended(
    database: Database, run_program: RunProgram, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    api = Client(run_program("falcon_app").address)
    run_dispatcher("--slots", "1")
    held = api.submit(kind="gate", input={"gate": str(gate)}).json()["id"]
    wait_until(lambda: api.get(f"/tasks/{held}").json()["state"] == "RUNNING", "the body runs")
    behind = api.submit(kind="echo", input={}).json()["id"]

    first, second = api.post(f"/tasks/{held}/cancel"), api.post(f"/tasks/{held}/cancel")

    assert (first.status, second.status) == (202, 202)
    assert (first.json()["state"], first.json()["cancel_requested"]) == ("RUNNING", True)
    assert database.value("select state from tally.task where id = %s", (behind,)) == "QUEUED"
    gate.touch()
    end = api.follow(held)
    assert (end["state"], end["result"], end["error"]) == (
        "CANCELED",
        None,
        {"reason": "canceled", "detail": "returned"},
    )
    assert api.follow(behind)["state"] == "SUCCEEDED"
    assert api.post(f"/tasks/{held}/cancel").status == 409


def test_a_task_canceled_at_any_moment_has_an_effect_only_if_its_cancel_was_cooperative(
    run_program: RunProgram, run_dispatcher: RunDispatcher, tmp_path: Path
) -> None:
    left = tmp_path / "effects"
    api = Client(run_program("falcon_app").address)
    run_dispatcher("--slots", "4")
    canceled = {}
    for _ in range(150):
        task = api.submit(kind="echo", input={"effects": str(left)}).json()["id"]
        answer = api.post(f"/tasks/{task}/cancel")
        assert answer.status in {202, 409}
        canceled[task] = answer.json()["state"] if answer.status == 202 else "ended"

    ends = {task: api.follow(task) for task in canceled}

    started = {int(line) for line in left.read_text().split()} if left.exists() else set()
    for task, state in canceled.items():
        if state == "CANCELED":
            assert task not in started
            assert ends[task]["attempt"] == 0
        elif state == "RUNNING":
            assert ends[task]["state"] == "CANCELED"
        else:
            assert ends[task]["state"] == "SUCCEEDED"


@pytest.mark.parametrize("module", ["falcon_app", "dispatcher"])
def test_a_program_waits_for_a_schema_and_refuses_a_newer_one(
    database: Database, run_program: RunProgram, module: str
) -> None:
    newest = database.rows(
        "delete from tally.migration where version = (select max(version) from tally.migration) returning version, name"
    )
    waiting = run_program(module, ready=False)
    wait_until(lambda: waiting.saw("schema.older"), "the program waits for a migration")
    database.execute("insert into tally.migration (version, name) values (%s, %s)", newest[0])
    waiting.wait_ready()
    database.execute("insert into tally.migration (version, name) values (9999, 'from the future')")

    refused = run_program(module, ready=False)

    assert refused.wait() == 1
    assert refused.saw("the schema is at 9999, this program knows")
    assert waiting.stop() == 0


def test_every_bad_setting_is_named_at_once_and_nothing_listens(run_program: RunProgram) -> None:
    bad = {"TALLY_BEAT_SECONDS": "fast", "TALLY_NO_SUCH": "1", "TALLY_SLOTS": "0", "DATABASE_URL": "nonsense"}

    for program in (
        run_program("falcon_app", "--admin", "0.0.0.0:0", env=bad, ready=False),
        run_program("dispatcher", env=bad, ready=False),
    ):
        assert program.wait() == 2
        for name in bad:
            assert program.saw(f"{name}: "), name
        assert not program.saw("ready ")


def test_tasks_that_cannot_be_imported_and_kinds_declared_twice_are_bad_settings(
    run_program: RunProgram, tmp_path: Path
) -> None:
    (tmp_path / "twice.py").write_text(
        "from dispatcher import task\n@task('text.stats')\ndef mine(input, context): ...\n"
    )

    program = run_program(
        "dispatcher", "--tasks", "no.such.module", "twice", env={"PYTHONPATH": str(tmp_path)}, ready=False
    )

    assert program.wait() == 2
    assert program.saw("tasks module no.such.module: ModuleNotFoundError")
    assert program.saw("kind 'text.stats' is declared twice: by dispatcher.text_stats.")

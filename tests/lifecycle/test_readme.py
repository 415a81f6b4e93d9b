"""Every command of the README, typed as it stands there; only the port and the database's address are the test's."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.lifecycle.conftest import MakeRun
from tests.lifecycle.test_make_run import stop
from tests.support.database import Database
from tests.support.http import Client
from tests.support.program import ROOT, Program, environment
from tests.support.waiting import wait_until

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
COMMANDS = [text for language, text in BLOCKS if language == "sh"]
OWN_DATABASE = "postgresql://me@localhost/mine"

SUBMIT_BY_PYTHON = """python -c 'from myapp.tasks import Mail, send; print(send.submit(Mail("ann@example.org")))'"""

RUN, TEST, SUBMIT, LOOK, CANCEL, STATUS, RUN_MINE, SUBMIT_MINE, RUN_OWN, PARTS, CAPACITY = COMMANDS


def sh(command: str, folder: Path, *, port: int = 8000, url: str | None = None) -> str:
    """Run a block of the README in the project's folder and return what it printed. It must succeed."""
    command = command.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace(OWN_DATABASE, url or OWN_DATABASE)
    env = environment({"DATABASE_URL": url, "PATH": f"{folder}/.venv/bin:{environment()['PATH']}"})
    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_submit_look_and_cancel(make_run: MakeRun, project: Path) -> None:
    assert RUN == "make run\n"
    running = make_run()
    typed = partial(sh, folder=project, port=running.address[1])

    submitted = typed(SUBMIT)
    assert "202" in submitted.splitlines()[0]
    assert "location: /tasks/1" in submitted.lower()
    wait_until(lambda: '"state":"SUCCEEDED"' in typed(LOOK), "the task has succeeded", seen=lambda: typed(LOOK))
    assert '"code":"already-terminal"' in typed(CANCEL).replace(" ", "")
    assert re.search(r"^default +10000 +False +0 +0 +0 +1 ", typed(STATUS), re.MULTILINE)
    stop(running)


def test_a_task_of_your_own(make_run: MakeRun, project: Path) -> None:
    (python,) = (text for language, text in BLOCKS if language == "python")
    (project / "myapp").mkdir()
    (project / "myapp" / "tasks.py").write_text(python)
    assert RUN_MINE == "TALLY_TASKS=myapp.tasks make run\n"
    running = make_run({"TALLY_TASKS": "myapp.tasks"})

    submitted = json.loads(sh(SUBMIT_MINE, project, port=running.address[1]))
    refused = json.loads(sh(SUBMIT_MINE.replace('"to": "ann', '"for": "ann'), project, port=running.address[1]))
    by_python = sh(SUBMIT_BY_PYTHON, project)

    assert submitted["kind"] == "mail.send"
    assert (refused["status"], refused["pointer"]) == (422, "/input/to")
    for task in (submitted["id"], int(by_python)):
        assert Client(running.address).follow(task)["result"] == {"sent_to": "ann@example.org"}
    stop(running)


def test_your_own_postgresql(make_run: MakeRun, project: Path, database: Database) -> None:
    assert RUN_OWN.split() == [f"DATABASE_URL={OWN_DATABASE}", "make", "run"]
    running = make_run({"DATABASE_URL": database.url})
    Client(running.address).submit(input={"text": "Go one"})

    assert Client(running.address).follow(1)["state"] == "SUCCEEDED"
    assert re.search(r"^default +100000 ", sh(CAPACITY, project, url=database.url), re.MULTILINE)
    stop(running)


def test_part_by_part(project: Path, database: Database) -> None:
    export, migrate, *programs = PARTS.splitlines()
    (project / ".venv").symlink_to(sys.prefix)
    assert export == f"export DATABASE_URL={OWN_DATABASE}"
    sh(migrate, project, url=database.url)
    (project / "myapp").mkdir()
    (project / "myapp" / "tasks.py").write_text("")
    env = environment({"DATABASE_URL": database.url, "PATH": f"{project}/.venv/bin:{environment()['PATH']}"})
    started = [Program(command.split(), env, project) for command in programs]
    for program in started:
        program.wait_ready()

    Client(started[0].address).submit(input={"text": "Go one"})

    assert Client(started[0].address).follow(1)["state"] == "SUCCEEDED"
    assert [program.stop() for program in started] == [0, 0]


def test_make_test_runs_the_tests() -> None:
    assert TEST == "make test\n"
    env = environment({"PYTEST_ADDOPTS": "--collect-only -q -p no:cacheprovider"})

    done = subprocess.run(
        ["make", "-o", ".venv/installed", "test"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout
    assert re.search(r"^(\d{3,}/)?\d{3,} tests collected", done.stdout, re.MULTILINE)

"""`make run`, end to end: honcho, the Procfile, the programs, the database, as a newcomer has them."""

import os
import re
import signal
from pathlib import Path

import psycopg

from tests.lifecycle.conftest import MakeRun
from tests.lifecycle.embedded import server_of
from tests.support.http import Client
from tests.support.program import Program
from tests.support.server import TestServer


def stop(program: Program) -> None:
    """Stop everything. honcho reports the status of the shell around each program, so the log must tell."""
    program.send(signal.SIGTERM)
    program.wait()
    assert program.output.count("stopped (rc=") == 3, program.output
    assert program.saw("dispatcher.ended status=0"), program.output
    assert not program.saw("SIGKILL"), program.output


def test_a_task_is_run_and_still_there_after_a_stop_and_a_start(make_run: MakeRun, project: Path) -> None:
    first = make_run()
    answer = Client(first.address).submit(input={"text": "Go one"})
    assert answer.status == 202
    task = Client(first.address).follow(answer.json()["id"])
    stop(first)
    assert not server_of(project).processes()

    second = make_run()
    again = Client(second.address).task(task["id"])
    stop(second)

    assert task["state"] == "SUCCEEDED"
    assert task["result"] == {"words": 2, "bytes": 6, "runes": 6}
    assert again == task


def test_a_dispatcher_that_is_killed_is_no_clean_end(make_run: MakeRun, project: Path) -> None:
    program = make_run()
    found = re.search(r"ready db url=(\S+)", program.output)
    assert found
    with psycopg.connect(found[1]) as connection:
        ((pid,),) = connection.execute("select pid from tally.dispatcher where stopped_at is null").fetchall()

    os.kill(pid, signal.SIGKILL)

    assert program.wait() != 0
    assert program.output.count("stopped (rc=") == 3, program.output
    assert program.saw(f"dispatcher.1 stopped (rc={128 + signal.SIGKILL})")
    assert not server_of(project).processes()


def test_with_a_database_url_it_migrates_and_starts_nothing_embedded(
    make_run: MakeRun, project: Path, server: TestServer
) -> None:
    server.bring_up()
    server.value("create database tally_empty")
    try:
        program = make_run({"DATABASE_URL": server.url("tally_empty")})
        task_id = Client(program.address).submit(input={"text": "Go one"}).json()["id"]

        assert Client(program.address).follow(task_id)["state"] == "SUCCEEDED"
        assert program.saw("migration.applied")
        assert not (project / ".tally").exists()
        stop(program)
    finally:
        server.value("drop database tally_empty with (force)")

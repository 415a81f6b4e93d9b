"""Whoever reads what a dispatcher prints may sleep or be gone: neither its work nor its exit status changes."""

import subprocess
import sys
from signal import SIGTERM

import pytest

from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.program import ROOT, environment
from tests.support.waiting import wait_until


def test_a_log_that_nobody_reads_holds_up_neither_the_work_nor_the_exit(database: Database, ledger: Ledger) -> None:
    env = environment({"DATABASE_URL": database.url})
    command = [sys.executable, "-m", "dispatcher", "--tasks", "tests.support.tasks"]
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        ledger.submit_many("raise", [{"text": "x" * 4000}] * 100)

        assert ledger.await_all() == {"FAILED": 100}

        process.send_signal(SIGTERM)
        assert process.wait(10) == 0
    ledger.reconcile()


@pytest.mark.parametrize("output", ["gone", "never there"])
def test_an_output_without_a_reader_does_not_change_the_exit_status(database: Database, output: str) -> None:
    env = environment({"DATABASE_URL": database.url})
    shell = (
        f"exec {sys.executable} -m dispatcher >&-"
        if output == "never there"
        else f"exec {sys.executable} -m dispatcher"
    )
    command = ["sh", "-c", shell]
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: database.value("select beat > 0 from tally.dispatcher"), "it has entered")
        assert process.stdout
        if output == "gone":
            assert process.stdout.readline()
        process.stdout.close()

        process.send_signal(SIGTERM)

        assert process.wait(10) == 0

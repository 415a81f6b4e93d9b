"""The log: written in order, flushed at the end, waited for by nobody."""

import subprocess
import sys

from tests.support.program import ROOT

FLOOD = """
import logging
from sql.log import flush_log, start_log
start_log("info")
for number in range(30_000):
    logging.info("line %d", number)
print("said", file=__import__("sys").stderr, flush=True)
input()
logging.info("last")
flush_log()
__import__("os")._exit(0)
"""


def test_what_was_said_is_written_in_order_when_a_program_ends() -> None:
    script = FLOOD.replace("30_000", "3_000").replace("input()", "")

    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    lines = [line.split(" MainThread ")[1] for line in done.stdout.splitlines()]
    assert lines == [*(f"line {number}" for number in range(3_000)), "last"]


def test_nobody_waits_for_a_reader_that_sleeps_and_what_was_lost_is_counted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FLOOD],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert process.stderr.readline() == "said\n"

        read = ""
        while "log.lost lines=" not in read:
            line = process.stdout.readline()
            assert line, f"it ended: {read[-200:]}"
            read += line
        rest, _ = process.communicate("\n", timeout=20)

    written = read + rest
    lost = int(written.partition("log.lost lines=")[2].splitlines()[0])
    assert written.count(" line ") + lost == 30_000
    assert written.endswith(" last\n")

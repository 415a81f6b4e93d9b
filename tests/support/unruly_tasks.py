"""Kinds whose bodies do to their process, or to who runs them, what no body should."""

import logging
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from dispatcher import Context, task

LIMIT_SECONDS: Final = 0.3
LINE: Final = "again and again"


@task("u.leave", slot="process")
def leave(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Leave a process of another session behind that prints for ever, write its id to the file `left`, and exit."""
    left = subprocess.Popen(["yes", LINE], start_new_session=True)
    Path(input["left"]).write_text(str(left.pid))
    while select.select([], [sys.stdout], [], 0)[1]:
        time.sleep(0.001)
    os._exit(3)


@task("u.flood", slot="process")
def flood(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Make the file `begun`, and print until canceled."""
    Path(input["begun"]).touch()
    lines = f"{LINE}\n".encode() * 4096
    while True:
        os.write(1, lines)


@task("u.wire", slot="process")
def wire(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Write these bytes, in hexadecimal digits, to the dispatcher's end of the wire, and sleep."""
    os.write(int(sys.argv[1]), bytes.fromhex(input["data"]))
    time.sleep(600)
    return "slept"


def raise_when_told(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Raise in what is called once this body is to stop, and sleep; `begun` is made before."""
    context.on_cancel(lambda: 1 // 0)
    Path(input["begun"]).touch()
    context.sleep(600)
    return "slept"


task("u.told")(raise_when_told)
task("u.told.limited", time_limit=LIMIT_SECONDS)(raise_when_told)


def log_badly(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Log what cannot be formatted, and by a logger whose name cannot be written; return nothing of it."""
    logging.getLogger("mine").warning("%d bottles", "no number of")
    logging.getLogger("mine.\ud800").warning("said by a strange name")
    return "logged"


task("u.log")(log_badly)
task("u.log.process", slot="process")(log_badly)


@task("u.block", slot="process")
def block(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Block every signal, take the handler of SIGTERM away, and return this process's id."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return os.getpid()

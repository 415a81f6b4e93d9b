"""Kinds whose bodies run in processes, and some with time limits. Apart: whoever knows them starts processes."""

import ctypes
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dispatcher import Context, task
from tests.support.tasks import leave_effect

KEPT: Final[list[bytes]] = []
LIMIT_SECONDS: Final = 0.5

if "dispatcher.child" in sys.orig_argv and Path(os.environ.get("TALLY_TEST_BREAK_CHILDREN", "/nowhere")).exists():
    raise ImportError("only in the child")


@task("p.echo", slot="process")
def echo(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return the input."""
    leave_effect(input, context)
    return input


@task("p.die", slot="process")
def die(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """End the process."""
    leave_effect(input, context)
    print("last words", file=sys.stderr, end="")
    match input["how"]:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "wire":
            os.closerange(3, 100)
            time.sleep(60)
    return "alive"


@task("p.gate", slot="process")
def gate(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Tell this process's id, and wait, whatever is asked meanwhile, until the file `gate` is there."""
    leave_effect(input, context)
    Path(input["gate"] + f".{context.task_id}").write_text(str(os.getpid()))
    while not Path(input["gate"]).exists():
        try:
            time.sleep(0.01)
        except Exception:
            print("not yet")
    return "through"


task("p.gate.again", slot="process", max_attempts=2, on_crash="retry")(gate)


@task("p.sleep", slot="process")
def sleep(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Sleep so many seconds, in the midst of a system call."""
    leave_effect(input, context)
    time.sleep(input["seconds"])
    return "slept"


@task("p.async", slot="process", time_limit=LIMIT_SECONDS)
async def sleep_async(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Sleep so many seconds, and clean up."""
    import asyncio

    try:
        await asyncio.sleep(input["seconds"])
    finally:
        leave_effect(input, context)
    return "slept"


@task("p.hold", slot="process")
def hold(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Hold the interpreter's lock for so many seconds."""
    leave_effect(input, context)
    if "helper" in input:
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(input["helper"]).write_text(f"{os.getpid()} {helper.pid}")
    ctypes.PyDLL(None).usleep(int(input["seconds"] * 1e6) % 1_000_000)
    ctypes.PyDLL(None).sleep(int(input["seconds"]))
    return "held"


@task("p.limited", slot="process", time_limit=LIMIT_SECONDS)
def limited(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Sleep so many seconds; `stubborn` whatever is raised, or `late` a moment longer."""
    leave_effect(input, context)
    end = time.monotonic() + input["seconds"]
    while time.monotonic() < end:
        try:
            time.sleep(end - time.monotonic())
        except Exception:
            if input.get("late"):
                return "late"
            if not input.get("stubborn"):
                raise
    return "slept"


@task("t.limited", time_limit=LIMIT_SECONDS)
def limited_in_thread(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Wait, whatever is asked meanwhile, until the file `gate` is there; or sleep as asked."""
    leave_effect(input, context)
    if "gate" not in input:
        context.sleep(input["seconds"])
        return "slept"
    while not Path(input["gate"]).exists():
        time.sleep(0.005)
    return {"canceled": context.cancel_requested}


@task("p.again", slot="process", max_attempts=2, on_crash="retry")
def again(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Die at the first attempt."""
    leave_effect(input, context)
    if context.attempt == 1:
        os._exit(7)
    return context.attempt


@task("p.print", slot="process")
def print_(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Print lines to both streams."""
    for number in range(input["lines"]):
        print(f"{input['text']} {number}")
    print(input["text"], end="", file=sys.stderr)
    return None


@task("p.look", slot="process")
def look(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return this process's id, what its files are, and how its session is led."""
    files = {}
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that was used to list them
            files[each.name] = str(each.readlink())
    return {"pid": os.getpid(), "files": files, "session": os.getsid(0), "group": os.getpgrp()}


@task("p.grow", slot="process")
def grow(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Keep so many MiB, and return this process's id."""
    KEPT.append(b"x" * (input["mib"] * 2**20))
    return os.getpid()


@task("p.large", slot="process")
def large(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return the text of the input."""
    return input["text"]


@task("p.fork", slot="process")
def fork(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Let a copy of this process go on beside it."""
    return "copy" if os.fork() == 0 else "original"


@task("p.log", slot="process")
def log(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Say something in the log."""
    import logging

    logging.getLogger("mine").warning("said %s", input["text"])
    raise ValueError(socket.gethostname())

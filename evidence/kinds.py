"""Kinds for the steps. A body that starts says so first: a line with its task's id in the step's file of effects.

The file is named by the environment, so that no input can forget it.
"""

import ctypes
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from dispatcher import Backoff, Context, Retry, task


def _began(context: Context) -> None:
    with Path(os.environ["EVIDENCE_EFFECTS"]).open("ab", buffering=0) as file:
        file.write(f"{context.task_id} {context.attempt} {os.getpid()}\n".encode())


@task("echo")
def echo(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return the input."""
    _began(context)
    return input


@task("sleep")
def sleep(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Sleep so many seconds; with `stubborn`, whatever is asked meanwhile."""
    _began(context)
    if input.get("stubborn"):
        time.sleep(input["seconds"])
    else:
        context.sleep(input["seconds"])
    return "slept"


@task("gate")
def gate(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Wait, whatever is asked meanwhile, until the file `gate` is there; then count the words of `text`."""
    _began(context)
    while not os.path.exists(input["gate"]):  # noqa: PTH110 - polled
        time.sleep(0.005)
    return {"words": len(input.get("text", "").split())}


@task("end_thread")
def end_thread(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """End a thread of this process, by its name, as a fault of ours would; then sleep so many seconds."""
    _began(context)
    (ident,) = (thread.ident for thread in threading.enumerate() if thread.name == input["thread"])
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident or 0), ctypes.py_object(SystemExit))
    time.sleep(input["seconds"])
    return "ended"


def attempted(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Wait for the file `gate`, where one is named; end in this attempt's way, one of `ways`, or the last of them."""
    _began(context)
    while "gate" in input and not Path(input["gate"]).exists():
        time.sleep(0.005)
    match input["ways"][min(context.attempt, len(input["ways"])) - 1]:
        case "raise":
            raise ValueError("on purpose")
        case "again":
            raise Retry(after=input["after"], reason="not yet")
        case "stay":
            time.sleep(input["seconds"])
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return {"attempt": context.attempt}


_SOON = Backoff(first=0.1, factor=2, cap=0.5)
task("try", max_attempts=3, backoff=_SOON)(attempted)
task("try.repeat", max_attempts=3, backoff=_SOON, on_crash="retry")(attempted)
task("try.process", slot="process", max_attempts=3, backoff=_SOON)(attempted)
task("try.process.repeat", slot="process", max_attempts=3, backoff=_SOON, on_crash="retry")(attempted)
task("try.limited", slot="process", max_attempts=2, backoff=_SOON, time_limit=0.5)(attempted)

"""Kinds for the steps. A body that starts says so first: a line with its task's id in the step's file of effects.

The file is named by the environment, so that no input can forget it.
"""

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

from dispatcher import Context, task


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

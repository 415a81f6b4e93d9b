"""Kinds for the tests. Where a body leaves an effect, it appends its task's id to the file it is told."""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dispatcher import Context, task


def leave_effect(input: dict[str, Any], context: Context) -> None:  # noqa: A002
    if "effects" in input:
        with Path(input["effects"]).open("ab", buffering=0) as file:
            file.write(f"{context.task_id}\n".encode())


def effects(file: Path) -> list[int]:
    """Return the task ids in a file of effects, in the order they were left."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@task("echo")
def echo(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return the input."""
    leave_effect(input, context)
    return input


@task("noop")
def noop(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Do nothing."""
    return None


@task("sleep")
def sleep(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Sleep so many seconds; with `stubborn`, whatever is asked meanwhile."""
    leave_effect(input, context)
    if input.get("stubborn"):
        time.sleep(input["seconds"])
    else:
        context.sleep(input["seconds"])
    return "slept"


@task("gate")
def gate(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Wait, whatever is asked meanwhile, until the file `gate` is there."""
    leave_effect(input, context)
    while not os.path.exists(input["gate"]):  # noqa: PTH110 - polled
        time.sleep(0.005)
    return {"canceled": context.cancel_requested}


@task("raise")
def raise_(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Raise a ValueError of this text."""
    leave_effect(input, context)
    raise ValueError(input["text"])


class Unlisted(BaseException):
    """Not even an Exception."""


@task("leave")
def leave(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """End in a way that would end a process, or a thread."""
    leave_effect(input, context)
    if input["how"] == "sys.exit":
        sys.exit(3)
    raise {"KeyboardInterrupt": KeyboardInterrupt, "BaseException": Unlisted, "GeneratorExit": GeneratorExit}[
        input["how"]
    ]


@task("thrown")
def thrown(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Have SystemExit thrown at this body's thread so many seconds after the body began, and run for `seconds`."""
    leave_effect(input, context)
    with _throwing:
        if not _thrower.is_alive():
            _thrower.start()
    _throws.append((time.monotonic() + input["after"], threading.get_ident()))
    end = time.monotonic() + input["seconds"]
    while time.monotonic() < end:
        time.sleep(0.001)
    return "not hit"


def _throw_all() -> None:
    while True:
        time.sleep(0.0005)
        for due in [each for each in _throws if each[0] <= time.monotonic()]:
            _throws.remove(due)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(due[1]), ctypes.py_object(SystemExit))


_throws: list[tuple[float, int]] = []
_throwing = threading.Lock()
# One for all: what is thrown at a thread in the moment it starts another would hit that one too.
_thrower = threading.Thread(target=_throw_all, name="thrower", daemon=True)


@task("emit")
def emit(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return a value by the name of what is wrong with it."""
    endless: list[object] = []
    endless.append(endless)
    values: dict[str, object] = {
        "nan": {"a": [1, float("nan")]},
        "infinity": [float("-inf")],
        "set": {"b": {1}},
        "nul": "\0",
        "nul key": {"c": {"\0": 1}},
        "surrogate": "\ud800",
        "endless": endless,
        "digits": [10**5000],
        "number key": {1: 2},
        "bytes": b"x",
        "large": "x" * 2**21,
    }
    return values[input["value"]]


@task("end_thread")
def end_thread(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """End a thread of this process, by its name, as a fault of ours would; then sleep so many seconds."""
    leave_effect(input, context)
    (ident,) = (thread.ident for thread in threading.enumerate() if thread.name == input["thread"])
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident or 0), ctypes.py_object(SystemExit))
    time.sleep(input.get("seconds", 0))
    return "ended"

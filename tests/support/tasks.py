"""Kinds for the tests. Where a body leaves an effect, it appends its task's id to the file it is told."""

import os
import time
from pathlib import Path
from typing import Any

from dispatcher import Context, task


def _leave_effect(input: dict[str, Any], context: Context) -> None:  # noqa: A002
    if "effects" in input:
        with Path(input["effects"]).open("ab", buffering=0) as file:
            file.write(f"{context.task_id}\n".encode())


def effects(file: Path) -> list[int]:
    """Return the task ids in a file of effects, in the order they were left."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@task("echo")
def echo(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return the input."""
    _leave_effect(input, context)
    return input


@task("noop")
def noop(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Do nothing."""
    return None


@task("sleep")
def sleep(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Sleep so many seconds; with `stubborn`, whatever is asked meanwhile."""
    _leave_effect(input, context)
    if input.get("stubborn"):
        time.sleep(input["seconds"])
    else:
        context.sleep(input["seconds"])
    return "slept"


@task("gate")
def gate(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Wait, whatever is asked meanwhile, until the file `gate` is there."""
    _leave_effect(input, context)
    while not os.path.exists(input["gate"]):  # noqa: PTH110 - polled
        time.sleep(0.005)
    return {"canceled": context.cancel_requested}


@task("raise")
def raise_(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Raise a ValueError of this text."""
    _leave_effect(input, context)
    raise ValueError(input["text"])


@task("emit")
def emit(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return a value by the name of what is wrong with it."""
    values: dict[str, object] = {"nan": {"a": [1, float("nan")]}, "set": {"b": {1}}, "nul": "\0", "surrogate": "\ud800"}
    return values[input["value"]]

"""Kinds for measuring slots that are processes, beside the same in threads. Apart, since children are made for them."""

from typing import Any, Final

from dispatcher import Context, task

STEPS: Final = 500_000
"""Some tens of milliseconds."""


@task("noop.thread")
def noop_in_thread(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Do nothing."""
    return None


@task("noop.process", slot="process")
def noop_in_process(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Do nothing."""
    return None


@task("compute.thread")
def compute_in_thread(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Keep a core busy, and the interpreter's lock."""
    return computed()


@task("compute.process", slot="process")
def compute_in_process(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Keep a core busy."""
    return computed()


def computed() -> int:
    """Return a number that takes its time."""
    number = 1
    for step in range(STEPS):
        number = (number * 31 + step) % 1_000_003
    return number

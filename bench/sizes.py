"""How much is measured: each size is an option of the command line, and `--small` chooses the other column."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field, fields
from typing import Any, Self


def _size(full: float, small: float, meaning: str) -> Any:
    return field(default=full, metadata={"small": small, "meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of one run."""

    repeat: int = _size(5, 1, "repetitions of everything; the median is given, with the spread")
    tasks: int = _size(50_000, 400, "queued tasks of one drain")
    slots: int = _size(32, 8, "slots of the dispatcher, and batch of the bare loop")
    best_slots: int = _size(512, 16, "slots of the dispatcher beside its peers")
    busy_tasks: int = _size(200, 8, "queued tasks of one drain whose bodies compute")
    slow_tasks: int = _size(5_000, 50, "queued tasks of one drain of a peer that is too slow for more")
    seconds: float = _size(2, 0.3, "length of one run of load over HTTP")
    bulk_requests: int = _size(50, 2, "bulk submits of a thousand tasks in one run")
    submits: int = _size(300, 5, "submits 20 ms apart in one run")
    crowd: int = _size(16, 2, "idle dispatchers of a crowd")
    producers: int = _size(8, 2, "connections that submit while a dispatcher works")
    backlog: int = _size(1_000_000, 2_000, "the longest backlog claimed from; the others are a tenth and a hundredth")
    old_snapshot: int = _size(200_000, 640, "tasks that come and go while another session holds a snapshot")
    max_open: int = _size(1_000_000, 2_000, "the larger capacity to submit under; the smaller is a hundredth")
    memory_tasks: int = _size(1_000_000, 2_000, "tasks after which memory is compared")
    memory_failures: int = _size(100_000, 200, "failures after which it is compared again")
    idle_seconds: float = _size(5, 0.5, "how long both programs are watched doing nothing")
    old_tasks: int = _size(1_000_000, 2_000, "ended tasks to be removed")

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        parser.add_argument("--small", action="store_true", help="just see that everything works")
        for each in fields(cls):
            kind = float if each.type is float else int
            flag = f"--{each.name.replace('_', '-')}"
            shown = f"{each.metadata['meaning']} ({each.default:,g})"
            parser.add_argument(flag, type=kind, metavar="N", help=shown)

    @classmethod
    def given(cls, given: Namespace) -> Self:
        chosen = {each.name: each.metadata["small"] for each in fields(cls)} if given.small else {}
        named = {each.name: getattr(given, each.name) for each in fields(cls)}
        return cls(**{**chosen, **{name: value for name, value in named.items() if value is not None}})

    @property
    def options(self) -> str:
        """The command line that gives these sizes."""
        values = {each: getattr(self, each.name) for each in fields(self)}
        if all(value == each.metadata["small"] for each, value in values.items()):
            return " --small"
        changed = [(each.name, value) for each, value in values.items() if value != each.default]
        return "".join(f" --{name.replace('_', '-')} {value}" for name, value in changed)

"""`python -m bench [SUBJECT …]`: measure, print tables, and write JSON where asked. Bounded in tasks and in time."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict

import psycopg

from bench import drain, footprint, pickup, submit
from bench.report import Table
from bench.stage import SERVER, Stage, stage


def main() -> int:
    """Measure what was asked for, everything without a name. Exit status 0 when every measurement was made."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=main.__doc__)
    parser.add_argument("subjects", metavar="SUBJECT", nargs="*", help="drain, pickup, crowd, submit, idle, memory")
    parser.add_argument("--tasks", type=int, default=20_000, help="tasks of one drain")
    parser.add_argument("--slots", type=int, default=32, help="slots of the dispatcher, and batch of the bare loop")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of drain, crowd and submit")
    parser.add_argument("--submits", type=int, default=300, help="submits of pickup")
    parser.add_argument("--crowd", type=int, default=16, help="idle dispatchers of crowd")
    parser.add_argument(
        "--seconds", type=float, default=3, help="length of one submit run; idle takes three times that"
    )
    parser.add_argument("--memory-tasks", type=int, default=200_000, help="tasks of the memory run")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    given = parser.parse_args()
    subjects: dict[str, Callable[[Stage], Table]] = {
        "drain": lambda on: drain.measure(on, tasks=given.tasks, slots=given.slots, repeat=given.repeat),
        "pickup": lambda on: pickup.measure(on, submits=given.submits),
        "crowd": lambda on: pickup.crowd(on, submits=given.submits, dispatchers=given.crowd, repeat=given.repeat),
        "submit": lambda on: submit.measure(on, seconds=given.seconds, repeat=given.repeat),
        "idle": lambda on: footprint.idle(on, seconds=3 * given.seconds),
        "memory": lambda on: footprint.memory(on, tasks=given.memory_tasks),
    }
    unknown = [name for name in given.subjects if name not in subjects]
    if unknown:
        parser.error(f"there is no subject {', '.join(unknown)}")
    with stage() as on:
        settings = {"server": on.connection.info.server_version, **SERVER, **_versions()}
        print(*(f"{name}: {value}" for name, value in settings.items()), "", sep="\n")
        tables = []
        for name in given.subjects or subjects:
            tables.append(subjects[name](on))
            print(tables[-1], flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:  # noqa: PTH123 - a name from the command line
            json.dump({"settings": settings, "tables": [asdict(table) for table in tables]}, file, indent=1)
    return 0


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "psycopg": psycopg.__version__, "cores": str(os.cpu_count())}


if __name__ == "__main__":
    sys.exit(main())

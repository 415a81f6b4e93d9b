"""The dispatcher's settings: flags over the environment."""

import argparse
from collections.abc import Mapping

from sql.settings import Settings, read


def read_settings(arguments: list[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings of a dispatcher. Raises `BadSettings` with every problem; argparse exits 2 by itself."""
    parser = argparse.ArgumentParser(prog="python -m dispatcher", allow_abbrev=False, description="Runs tasks.")
    parser.add_argument("--slots", metavar="N", help="tasks run at the same time")
    parser.add_argument("--queue", metavar="NAME", help="the queue to serve")
    parser.add_argument("--tasks", metavar="MODULE", nargs="+", help="modules that declare kinds")
    flags = vars(parser.parse_args(arguments))
    if flags["tasks"] is not None:
        flags["tasks"] = ",".join(flags["tasks"])
    return read(environ, flags)


def modules(settings: Settings) -> list[str]:
    """Return the names of the modules that declare kinds."""
    return [name.strip() for name in settings.tasks.split(",") if name.strip()]

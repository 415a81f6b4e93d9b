"""The dispatcher's settings: flags over the environment, and what must agree."""

import argparse
from collections.abc import Mapping

from sql.settings import BadSettings, Settings, read, variable


def read_settings(arguments: list[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings of a dispatcher. Raises `BadSettings` with every problem; argparse exits 2 by itself."""
    parser = argparse.ArgumentParser(prog="python -m dispatcher", description="Runs tasks.")
    parser.add_argument("--slots", metavar="N", help="tasks run at the same time")
    parser.add_argument("--queue", metavar="NAME", help="the queue to serve")
    parser.add_argument("--tasks", metavar="MODULE", nargs="+", help="modules that declare kinds")
    flags = vars(parser.parse_args(arguments))
    if flags["tasks"] is not None:
        flags["tasks"] = ",".join(flags["tasks"])
    settings = read(environ, flags)
    least = 2 * (settings.database_addresses * settings.connect + settings.backoff)
    if settings.grace < least:
        problem = f"expected at least {least.total_seconds():g}, twice the longest time a reconnect may take"
        raise BadSettings([f"{variable('grace')}: {problem}, got {settings.grace.total_seconds():g}"])
    return settings


def modules(settings: Settings) -> list[str]:
    """Return the names of the modules that declare kinds."""
    return [name.strip() for name in settings.tasks.split(",") if name.strip()]

"""The record of a subject: its table as JSON, with the versions, settings and sizes that it was measured by."""

import json
import os
import platform
import shutil
import subprocess
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.plots import draw
from bench.sizes import Sizes
from bench.stage import SERVER, Stage
from bench.table import Table


def begin(subject: str, stage: Stage, sizes: Sizes) -> dict[str, Any]:
    """Return the record of a measurement that begins now, its table still to come."""
    return {
        "subject": subject,
        "command": f"python -m bench {subject}{sizes.options}",
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        "took": -time.monotonic(),  # until the end is added
        "machine": _machine(),
        "versions": {"PostgreSQL": str(stage.run("version")[0]), **_versions()},
        "settings": SERVER,
        "sizes": asdict(sizes),
    }


def write(begun: dict[str, Any], table: Table, folder: Path) -> None:
    """Draw the plot of a table, and write its record."""
    if table.plot and not draw(table.plot, folder / f"{begun['subject']}.png"):
        table.notes.append("the plot was not drawn: matplotlib is not installed (the extra `bench`)")
    record = {**begun, "took": round(begun["took"] + time.monotonic(), 1), **asdict(table)}
    record["rows"] = {name: [round(value, 4) for value in values] for name, values in table.rows.items()}
    (folder / f"{begun['subject']}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a folder by subject."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {record["subject"]: record for record in found}


def _machine() -> str:
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = int(_lines("/proc/meminfo")[0].split()[1]) / 2**20
    cores = f"{os.cpu_count()} cores ({names[0] if names else platform.machine()})"
    return f"{cores}, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in ("psycopg", "falcon", "waitress")}
    if shutil.which("wrk"):
        said = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False).stdout.split()
        found["wrk"] = said[1] if len(said) > 1 else "unknown"
    return {"Python": platform.python_version(), **found}

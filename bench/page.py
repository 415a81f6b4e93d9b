"""The page of a run, docs/performance.md: made from its JSON and its plots, and nothing else."""

import shutil
from pathlib import Path
from typing import Any, Final

from bench.record import read
from bench.table import NOT_RUN, Table, cells
from bench.targets import TARGETS

HEAD: Final = """# Performance

Made by `python -m bench report` from the figures in [performance/](performance/), a file for each subject; none was
copied by hand. `make bench` measures anew. One machine runs everything: PostgreSQL, both programs, and whatever
submits to them. A figure is the median of its repetitions, and a ratio is taken within a repetition: compare ratios,
and read rates as what this machine did that day. Nothing here is a timed test.
"""


def write_page(run: Path, page: Path) -> list[str]:
    """Write the page of a run, its JSON and its plots beside it; returns what is not met or not run."""
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(run.iterdir()):
        if file.suffix in {".json", ".png"} and file.parent.resolve() != folder.resolve():
            shutil.copy(file, folder)
    page.write_text(rendered(folder))
    return [line for line in _targets(read(folder))[2:] if "| yes" not in line]


def rendered(folder: Path) -> str:
    """Return the page of what is in the folder beside it."""
    records = read(folder)
    parts = [HEAD, *_circumstances(records), "## Targets\n", *_targets(records), ""]
    order = [target.subject for target in TARGETS]
    for subject in sorted(records, key=lambda each: order.index(each) if each in order else len(order)):
        record = records[subject]
        table = Table(record["title"], record["rows"], record["notes"])
        parts.append(f"{table}\n`{record['command']}`, {record['at']} UTC, {record['took']:.0f} s\n")
        if (folder / f"{subject}.png").exists():
            parts.append(f"![{record['plot']['title']}]({folder.name}/{subject}.png)\n")
    return "\n".join(parts)


def _targets(records: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["| Work | Target | Figure | Spread | Met | Command |", "|---|---|--:|---|---|---|"]
    for target in TARGETS:
        record = records.get(target.subject)
        values = record["rows"].get(target.row, []) if record else []
        figure, least, most, _ = cells(values)
        spread = f"{least} to {most}" if values else ""
        command = record["command"] if record else f"python -m bench {target.subject}"
        row = (target.work, target.wanted, figure, spread, target.judged(values), f"`{command}`")
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _circumstances(records: dict[str, dict[str, Any]]) -> list[str]:
    """Say, once each, on what and with what it was measured."""
    lines = []
    for name in ("machine", "versions", "settings"):
        said = {_listed(record[name]) for record in records.values()}
        lines.append(f"- {name}: {'; or '.join(sorted(said)) or NOT_RUN}")
    return [*lines, ""]


def _listed(value: str | dict[str, str]) -> str:
    return value if isinstance(value, str) else ", ".join(f"{name} {each}" for name, each in value.items())

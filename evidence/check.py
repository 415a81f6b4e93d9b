"""Checking a run from its files alone: the sums, the reconciliation, and that the summary says what the files say."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from evidence import sums
from evidence.archive import archive_in
from evidence.journal import as_json
from evidence.step import Step
from evidence.steps import folder_of
from evidence.summary import Results, document, passed, results, summary


def verdict(folder: Path, steps: dict[str, Step]) -> bool:
    """Print what a check finds; true where nothing is wrong with the files and every step in them passed."""
    if other := _other_version(folder):
        print(f"NOTE: {other} files of this package are not those that made the evidence: its source archive has them")
    wrong = list(problems(folder, steps))
    for each in wrong:
        print(f"PROBLEM: {each}")
    found = results(folder, steps)
    failed = [name for name, claims in found.items() if not passed(claims)]
    fault = document(folder, "plan.json").get("fault")
    print(f"the evidence {'does not fit together' if wrong else 'fits together'}; ", end="")
    print(f"failed: {', '.join(failed)}" if failed else f"{len(found)} steps passed")
    return not wrong and not failed and not fault


def _other_version(folder: Path) -> int:
    """Count the files of this package that differ from the source archive's; none where there is no archive."""
    made_it = sums.read(folder / sums.OF_THE_SOURCES)
    here = Path(__file__).parent
    ours = {f"evidence/{file.relative_to(here).as_posix()}": sums.of_file(file) for file in here.rglob("*.py")}
    return sum(made_it.get(name) != digest for name, digest in ours.items()) if made_it else 0


def problems(folder: Path, steps: dict[str, Step]) -> Iterator[str]:
    """Name everything that does not fit together; nothing of a run that failed and says so."""
    yield from _sums(folder)
    found = results(folder, steps)
    yield from _plan(folder, steps)
    yield from _claims(folder, found)
    page = folder / "SUMMARY.md"
    if not page.exists() or page.read_text() != summary(folder, steps, found):
        yield "SUMMARY.md says something else than the files"


def _sums(folder: Path) -> Iterator[str]:
    written = sums.read(folder / sums.OF_THE_EVIDENCE)
    if not written:
        yield f"evidence: there is no {sums.OF_THE_EVIDENCE}"
    yield from sums.differences(written, sums.of_folder(folder), "evidence")
    if (sources := folder / sums.OF_THE_SOURCES).exists():
        yield from sums.differences(sums.read(sources), sums.of_archive(archive_in(folder)), "source archive")


def _plan(folder: Path, steps: dict[str, Step]) -> Iterator[str]:
    plan = document(folder, "plan.json")
    told = [*plan.get("steps", []), *plan.get("left_out", [])]
    if sorted(told) != sorted(steps):
        yield f"plan.json and this version have different steps: {sorted(set(told) ^ steps.keys())}"
    for name in plan.get("steps", []):
        if name in steps and not (folder / folder_of(name) / "step.json").exists() and not plan.get("fault"):
            yield f"step {name} is missing"


def _claims(folder: Path, found: Results) -> Iterator[str]:
    for name, claims in found.items():
        if not (folder / folder_of(name) / "step.json").exists():
            continue
        file = folder / folder_of(name) / "claims.json"
        written = json.loads(file.read_text()) if file.exists() else []
        worked_out = json.loads(as_json([asdict(each) for each in claims]))
        for claim in worked_out:
            if claim not in written:
                yield f"step {name}: its files say: {claim}"
        if len(written) != len(worked_out):
            yield f"step {name}: {len(written)} claims were written, its files make {len(worked_out)}"

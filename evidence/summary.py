"""The one page about a run, made from the run's own files and from nothing else."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from evidence.reconcile import claims_of
from evidence.record import OPEN, TERMINAL, Record
from evidence.step import Claim, Step
from evidence.steps import folder_of
from evidence.sums import OF_THE_EVIDENCE, OF_THE_SOURCES

NOT_RUN: Final = (
    "TLS and authentication: the service has neither",
    "clients, databases or dispatchers on other hosts; a proxy on this host stood for a real network's losses",
    "other platforms, kernels, and versions of Python and PostgreSQL than those above",
    "a replica, a failover, synchronous replication, a connection pooler in between",
    "loss of power: programs and servers were killed, the machine was not",
    "outside effects of a body: nobody undoes what it did outside its row, and nobody looked",
    "publication: nothing was uploaded, no image was built",
    "load for hours or days, and what memory does over them",
)

Results = dict[str, list[Claim]]


def results(folder: Path, steps: dict[str, Step]) -> Results:
    """Work out the claims of every step that was to be played; a step without a folder has one that failed."""
    planned = document(folder, "plan.json").get("steps", [])
    return {name: _claims(folder / folder_of(name), steps[name]) for name in planned if name in steps}


def document(folder: Path, name: str) -> dict[str, Any]:
    """Return a file's one JSON document; an empty one where the run did not come so far."""
    file = folder / name
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def passed(claims: list[Claim]) -> bool:
    return all(each.passed for each in claims)


def summary(folder: Path, steps: dict[str, Step], found: Results) -> str:
    """Return the page. It says PASSED only where the run came to its end and every step of it passed."""
    return "\n".join(_lines(folder, steps, found)) + "\n"


def _claims(place: Path, step: Step) -> list[Claim]:
    return claims_of(step, place) if (place / "step.json").exists() else [Claim("it was played", None, passed=False)]


def _lines(folder: Path, steps: dict[str, Step], found: Results) -> Iterator[str]:
    plan = document(folder, "plan.json")
    good = [name for name, claims in found.items() if passed(claims)]
    whole = plan.get("ended_utc") and not plan.get("fault") and len(good) == len(found) > 0
    yield f"# Evidence {plan.get('name')}: {'PASSED' if whole else 'FAILED'}"
    yield ""
    yield f"{len(good)} of {len(found)} steps passed, {len(steps) - len(found)} NOT_RUN."
    yield f"Played from {plan.get('began_utc')} to {plan.get('ended_utc')}; written from the files beside this one."
    if plan.get("fault"):
        yield f"The run ended early: {plan['fault'].strip().splitlines()[-1]}"
    yield ""
    yield "| Step | | Seconds | What it shows |"
    yield "|---|---|---|---|"
    for name, claims in found.items():
        seconds = document(folder / folder_of(name), "step.json").get("seconds", "")
        yield f"| {folder_of(name)} | {'passed' if passed(claims) else 'FAILED'} | {seconds} | {steps[name].shows} |"
    for name, claims in found.items():
        for each in claims:
            if not each.passed:
                yield f"\nFAILED in {name}: {each.says}. Seen: `{str(each.seen)[-300:]}`"
    for title, section in (
        ("What it ran", _versions(folder, plan)),
        ("Figures", _figures([Record(folder / folder_of(name)) for name in found])),
        ("NOT_RUN", [f"NOT_RUN: step {name}" for name in steps if name not in found] + _never()),
    ):
        yield f"\n## {title}\n"
        yield from (f"- {line}" for line in section)


def _versions(folder: Path, plan: dict[str, Any]) -> Iterator[str]:
    source = document(folder, "source.json")
    changed = source.get("changed")
    state = {True: "as it was committed", False: "with changes since, see `source.json`"}[changed == []]
    yield f"commit: {source.get('commit')}, {state}" if source.get("commit") else "commit: no repository"
    for name, value in document(folder, "versions.json").items():
        yield f"{name}: {value}"
    yield f"kills: {plan.get('kills')}, seed {plan.get('seed')}"
    yield f"sums: `{OF_THE_SOURCES}` of what ran, `{OF_THE_EVIDENCE}` of these files"


def _figures(records: list[Record]) -> Iterator[str]:
    answers = Counter(str(each.status or "none") for record in records for each in record.exchanges)
    submits = Counter(str(each.status or "none") for record in records for each in record.exchanges if each.is_submit)
    states = Counter(row["state"] for record in records for row in record.tasks)
    yield f"HTTP requests: {answers.total():,} ({_counted(answers)})"
    yield f"submits among them: {submits.total():,} ({_counted(submits)})"
    terminal, still_open = (sum(states[each] for each in which) for which in (TERMINAL, OPEN))
    yield f"rows: {states.total():,}, terminal {terminal:,}, open {still_open:,}"
    yield f"bodies started: {sum(len(record.effects) for record in records):,}"
    yield f"programs started: {sum(len(record.programs) for record in records):,}"
    yield f"SQL statements: {sum(len(record.statements) for record in records):,}"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))


def _never() -> list[str]:
    return [f"NOT_RUN: {text}" for text in NOT_RUN]

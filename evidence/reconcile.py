"""The ledger of a step, worked out from its files: the same in the run and in the check."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from evidence.record import OPEN, TERMINAL, Exchange, Record, Row, identity
from evidence.step import Claim, Step, equal

REFUSED = (400, 404, 405, 409, 411, 413, 415, 422, 431, 501, 503)
"""Answers to a submit after which this request has no row, now or later."""


def claims_of(step: Step, folder: Path) -> list[Claim]:
    """Return what the step claims and what every step does: that it came to its end, and that its ledger adds up."""
    record = Record(folder)
    claims = [equal("the step came to its end", record.step["fault"], None)]
    for source in (step.claims, ledger):
        try:
            claims += source(record)
        except Exception as fault:  # noqa: BLE001 - files that tell less than they should are a claim that failed
            claims.append(Claim("its files tell what it claims", f"{type(fault).__name__}: {fault}", passed=False))
    return claims


def ledger(record: Record) -> Iterator[Claim]:
    """202s = terminal + still open; refused submits left no row; no attempt begun twice; what was read stays true."""
    submits = [each for each in record.exchanges if each.is_submit]
    ids = {row["id"]: row for row in record.tasks}
    accepted = {each.task_id for each in submits if each.status == 202}
    yield equal("every 202's id is a row", sorted(str(each) for each in accepted - ids.keys()), [])

    rows = [ids[each] for each in accepted & ids.keys() if each is not None]
    ended = sum(row["state"] in TERMINAL for row in rows)
    still_open = sum(row["state"] in OPEN for row in rows)
    seen = {"202s": len(accepted), "terminal": ended, "open": still_open}
    yield Claim("202s = terminal + still open", seen, len(accepted) == ended + still_open)

    yield equal("every submit has the rows that its answers allow", list(_wrongly_answered(record, submits)), [])
    yield equal("every row was submitted", list(_strangers(record, submits)), [])
    starts = Counter(record.begun)
    yield equal("no attempt was begun twice", sorted(start for start, count in starts.items() if count > 1), [])
    yield equal("no body was started without a row", sorted({task for task, _ in starts} - ids.keys()), [])
    uncounted = sorted((task, attempt) for task, attempt in starts if task in ids and attempt > ids[task]["attempt"])
    yield equal("no attempt was begun that its row does not count", uncounted, [])
    yield equal("every attempt that another followed is kept with its error", list(_unkept(record)), [])
    yield equal("a state that was read as terminal is the row's", list(_changed(record)), [])
    yield equal("a dispatcher that ended with 0 has left nothing open", list(_left_behind(record)), [])


def _wrongly_answered(record: Record, submits: list[Exchange]) -> Iterator[str]:
    """A submission that was sent several times under one key may have made one row, whatever its answers."""
    sent: dict[tuple[str, str | None], list[Exchange]] = defaultdict(list)
    for each in submits:
        if each.identity is not None:
            sent[each.identity, each.key].append(each)
    for (submitted, key), answers in sent.items():
        rows = [row["id"] for row in record.rows_of(submitted) if row["idempotency_key"] == key]
        named = [each.task_id for each in answers if each.status == 202]
        unknown = [each for each in answers if each.status not in (202, *REFUSED) and not each.never_arrived]
        most = len(named) + len(unknown)
        if key is not None:
            named, most = list(set(named)), min(1, most)
        if len(set(named)) < len(named) or not set(named) <= set(rows) or len(rows) > most:
            yield f"{submitted}: answered {[each.status for each in answers]} {named}, rows {rows}"


def _strangers(record: Record, submits: list[Exchange]) -> Iterator[int]:
    known = {each.identity for each in submits}
    known |= {each for event in record.events("submitted by sql") for each in event["identities"]}
    yield from (row["id"] for row in record.tasks if identity_of(row) not in known)


def identity_of(row: Row) -> str:
    return identity(row["kind"], row["input"])


def _unkept(record: Record) -> Iterator[str]:
    for row in record.tasks:
        kept = row["attempts"] or []
        # One that waits, or was canceled while it did, has no start of its own: its last attempt was to be followed.
        followed = row["attempt"] - (row["started_at"] is not None)
        numbers = [each["attempt"] for each in kept]
        if numbers != list(range(1, followed + 1)) or not all(each["error"]["reason"] for each in kept):
            yield f"task {row['id']}, attempt {row['attempt']}: kept {kept}"


def _changed(record: Record) -> Iterator[str]:
    last: dict[int | None, str] = {row["id"]: row["state"] for row in record.tasks}
    for each in record.exchanges:
        answer = each.json if each.status in (200, 202) else None
        state = answer.get("state") if isinstance(answer, dict) else None
        if state in TERMINAL and last.get(each.task_id) != state:
            yield f"{each.method} {each.path} read {state}, the row is {last.get(each.task_id)}"


def _left_behind(record: Record) -> Iterator[str]:
    for program in record.programs.values():
        if "dispatcher" in program.command and program.status == 0:
            for mine in record.dispatchers:
                if f"id={mine['id']} " in program.stdout:
                    left = [
                        row["id"] for row in record.tasks if row["claimed_by"] == mine["id"] and row["state"] in OPEN
                    ]
                    if left or mine["stopped_why"] != "left":
                        yield f"{program.name}: {mine['stopped_why']}, open {left}"

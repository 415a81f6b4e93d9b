"""The steps, in the order of the fault table. A row of it is one step, or several where it names several faults."""

from importlib import import_module
from pathlib import Path
from typing import Final

from evidence.archive import ARCHIVE
from evidence.step import STEPS, Step

CONTENTS: Final = {
    "what is run": ["archive"],
    "`--admin 0.0.0.0:0`; several bad settings at once": ["settings-refused"],
    "body not JSON; unknown id": ["requests-refused"],
    "`Go one` submitted and followed; four words with a limit of three": ["accepted-is-not-succeeded"],
    "claim delayed, one slot, room for one more, a third submit": ["queue-full"],
    "the queued one of those canceled twice; a finished one canceled": ["cancel-queued"],
    "a running one canceled, its body held at a gate": ["cancel-running", "cancel-running-drained"],
    "two claimers at one row; a submit, claim or finish whose transaction fails half-way": [
        "two-claimers",
        "half-way-failures",
    ],
    "claim refused for one task of a batch; claim of one task slower than 2 s": ["claim-refused", "claim-slow"],
    "the same, and writing that failure is refused too": [
        "refusal-refused",
        "refusal-refused-canceled",
        "refusal-refused-drained",
    ],
    "claim's connection dies before or after its commit; the server frozen at that moment": [
        "claim-cut-off-before-commit",
        "claim-cut-off-after-commit",
        "claim-unsettled-drained",
        "claim-frozen",
        "claim-frozen-drained",
    ],
    "terminal write delayed beyond 2 s; the row locked; an error nobody listed": [
        "finish-delayed",
        "finish-locked",
        "finish-locked-for-minutes",
        "finish-refused",
        "finish-forbidden",
    ],
    "PostgreSQL stopped (fast, immediate) and started again": ["server-stopped-fast", "server-stopped-immediate"],
    "PostgreSQL frozen for 30 s; a proxy that stops forwarding for 30 s": ["server-frozen", "network-frozen"],
    "every connection of ours or of the server in use; disk full": [
        "connections-in-use",
        "web-connections-in-use",
        "disk-full",
    ],
    "a web process frozen in the middle of an admission": ["web-frozen"],
    "the reply to COMMIT lost on submit": ["submit-reply-lost", "submit-reply-lost-crash"],
    "the same request again with its `Idempotency-Key`": ["idempotency-key", "idempotency-key-held"],
    "one row of an admission batch refused by a trigger": ["batch-row-refused"],
    "NOTIFY queue full": ["notify-queue-full"],
    "the reply to COMMIT lost on a terminal write": ["finish-reply-lost"],
    "database read-only for a while": ["read-only"],
    "SIGTERM, then start on the same database": ["drained-and-restarted"],
    "SIGTERM with the database down or frozen; three signals in 100 ms; condemned": [
        "drain-without-database",
        "drain-three-signals",
        "drain-condemned",
    ],
    "terminal write delayed, RUNNING in SQL, SIGKILL, started again at once": ["killed-and-restarted"],
    "SIGKILL at random moments under load": ["kills"],
    "a body raises; its attempt's end unanswered, locked; a waiting task orphaned, canceled": [
        "retried",
        "retry-reply-lost",
        "retry-locked",
        "waiting-released",
        "waiting-canceled",
    ],
    "a task killed, or given up, that may run again after a crash": ["crash-repeated", "crash-given-up"],
    "a body's own process dies, or outlasts its time limit": ["process-slot-dies", "time-limit"],
    "SIGKILL at random moments with retries, time limits and processes in use": ["attempts-killed"],
    "session's backend terminated, repeatedly; a thread of the dispatcher dies": [
        "session-terminated",
        "thread-dies",
    ],
}
"""Every row of the fault table, and the steps that are its."""

NAMES: Final = [name for names in CONTENTS.values() for name in names]


def all_steps() -> dict[str, Step]:
    """Return every step that there is, in the order of the table, the archive first."""
    for module in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        import_module(f"{__name__}.{module.stem}")
    known = {ARCHIVE.name: ARCHIVE, **STEPS}
    return {name: known[name] for name in NAMES if name in known}


def folder_of(name: str) -> str:
    """Return the name of a step's folder, which sorts as the table does."""
    return f"{NAMES.index(name):02d}-{name}"

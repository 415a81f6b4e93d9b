"""What proves that a dispatcher's process lives, or is gone, to a judge on the same machine.

Each dispatcher binds an abstract Unix socket named by its id and holds it, with its children, to the end. The
kernel frees the name when the last of them is gone, and not before. Such names are one space for each boot and
network namespace, so a judge compares those first. Elsewhere than on Linux there is no such proof.
"""

import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

HAS_PROOF = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs; two are in one place when both are equal and not empty."""

    boot_id: str
    network_namespace: str

    def shares_names_with(self, other: "Place") -> bool:
        return HAS_PROOF and self == other and bool(self.boot_id) and bool(self.network_namespace)


def here() -> Place:
    """Return this process's place; empty texts where the system does not tell."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/net").stat()
    except OSError:
        return Place("", "")
    return Place(boot_id, f"{namespace.st_dev}:{namespace.st_ino}")


def hold_name(dispatcher: UUID) -> socket.socket | None:
    """Bind the name of a dispatcher; keep the socket for as long as the process lives. Raises `OSError` if taken."""
    if not HAS_PROOF:
        return None
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0tally:{dispatcher}")
    except OSError:
        held.close()
        raise
    return held


def is_name_free(dispatcher: UUID) -> bool:
    """Is no process left that holds the name? Meaningful only in the dispatcher's own place."""
    try:
        held = hold_name(dispatcher)
    except OSError:
        return False
    if held is None:
        return False
    held.close()
    return True

"""What the system says of processes: who has started whom, and who is gone."""

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the processes that this one has started and that have not ended, in no order."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            state, parent = _stat(int(each.name))
            if parent == pid and state != "Z":
                found.append(int(each.name))
    return found


def is_gone(pid: int) -> bool:
    """Has it ended? Perhaps nobody has asked for its status yet."""
    state, _ = _stat(pid)
    return state in {"", "Z"}


def _stat(pid: int) -> tuple[str, int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])

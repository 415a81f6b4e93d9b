"""A machine of the cluster, as far as processes go: whatever its command starts lives and dies below this one.

`python -m tests.cluster.machine COMMAND …` runs a command and takes in every process whose parent ends, so that the
whole machine is one tree, which a test can freeze or kill at once: Patroni's servers outlive Patroni by themselves.
It ends with its last process. When its standard input ends, so does everything: nothing outlives the tests.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36


def descendants(pid: int) -> list[int]:
    """Return the ids of every process below this one that still runs, parents first."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name before it is in parentheses, and may hold any character.
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    children[int(parent)].append(int(entry.name))

    def below(parent: int) -> Iterator[int]:
        for child in children[parent]:
            yield child
            yield from below(child)

    return list(below(pid))


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_descendants(pid: int) -> None:
    """Kill everything below this process, and what that had begun meanwhile."""
    while left := descendants(pid):
        send(left, signal.SIGKILL)


def _fall_with_the_tests() -> None:
    while os.read(0, 1):
        pass
    kill_descendants(os.getpid())


def main() -> None:
    """Run the command until nothing is left of it."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("this system has no subreapers")
    with Path(os.devnull).open("rb") as nothing:
        os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nothing.fileno(), 0)])
    threading.Thread(target=_fall_with_the_tests, name="stdin", daemon=True).start()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main()

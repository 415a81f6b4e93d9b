"""How a child ends with its dispatcher, whatever became of that: a pipe that only the dispatcher can write to.

Nothing is ever written. When the dispatcher is gone, the kernel closes its end, and whoever holds the other is told: on
Linux by the kernel itself, with SIGKILL for the child's whole process group, though the body holds the interpreter's
lock or sits in a system call. (`PR_SET_PDEATHSIG` is bound to the thread that started the child, not to the process.)
Elsewhere a thread waits for it, and a body that holds the interpreter's lock lives on until it lets go.
"""

import fcntl
import os
import select
import signal
import sys
from threading import Thread


def bind(life: int, group: int) -> None:
    """Have a process group killed by the kernel, where it can, once nobody can write to the pipe any more.

    Whom the signal goes to is kept with the open file, for as long as anybody has that: a dispatcher binds its child
    while the child's interpreter still starts. So each child needs a pipe of its own.
    """
    if sys.platform == "linux":
        fcntl.fcntl(life, fcntl.F_SETOWN, -group)
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)


def end_with(life: int) -> None:
    """Have this process's group killed then, or now, where it is so already."""
    bind(life, os.getpgrp())
    if select.select([life], [], [], 0)[0]:
        _end()
    if sys.platform != "linux":
        Thread(target=_await_end, args=(life,), name="life", daemon=True).start()


def _await_end(life: int) -> None:
    os.read(life, 1)
    _end()


def _end() -> None:
    os.killpg(0, signal.SIGKILL)

"""Who runs a server of ours, and how commands are run as that user.

PostgreSQL refuses to run as root, so as root everything is done as `postgres`, or else `nobody`, with no shell in
between. Every command runs in a process session of its own, so that neither a terminal's Ctrl-C nor a signal to
our process group reaches it, and without the person's environment: PG… variables, locales and loader paths change
what these programs do.
"""

import contextlib
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypedDict

from sql.errors import TallyError

_ENVIRONMENT: Final = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


class ServerFault(TallyError):
    """The server, or something it needs, is not there or does not work; the message says what."""


class GivenUp(Exception):
    """Nobody wants the result any more."""


class _User(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def server_account() -> pwd.struct_passwd | None:
    """Return who runs the server; None is whoever we are. Raises `ServerFault` when root knows nobody else."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerFault("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")


def private_folder(folder: Path, owner: pwd.struct_passwd | None) -> Path:
    """Return a folder that only its owner may enter, made if need be. Raises `ServerFault` when it is not so."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if owner:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
    found = folder.lstat()
    if found.st_uid != (owner.pw_uid if owner else os.geteuid()) or found.st_mode & 0o170077 != 0o040000:
        raise ServerFault(f"{folder} must be a folder that only the server's user may enter")
    return folder


def run(
    command: Sequence[str | Path],
    owner: pwd.struct_passwd | None,
    *,
    seconds: float = 60,
    give_up: Callable[[], bool] = lambda: False,
) -> str:
    """Run a command as the owner and return what it printed.

    Raises `ServerFault` with its last words when it fails or takes too long, and `GivenUp` soon after `give_up`
    says so; what it started in its session is killed then.
    """
    end = time.monotonic() + seconds
    user: _User = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env=_ENVIRONMENT,
            start_new_session=True,
            **user,
        )
    except OSError as error:
        raise ServerFault(f"{command[0]}: {error.strerror}") from error
    with process:
        while True:
            try:
                printed, _ = process.communicate(timeout=0.05)
                break
            except subprocess.TimeoutExpired:
                if give_up() or time.monotonic() > end:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.communicate()
                    if time.monotonic() > end:
                        raise ServerFault(f"{command[0]} took longer than {seconds:g} s") from None
                    raise GivenUp from None
    if process.returncode != 0:
        last = " ".join(printed.strip().splitlines()[-4:])
        raise ServerFault(f"{command[0]} ended with {process.returncode}: {last}")
    return printed

"""Where the embedded server of a folder lives. Every program started in that folder works it out for itself.

Its home is `.tally/` in the folder. As root the server runs as another user, and where that user can't reach
`.tally/`, the home is /var/lib/pgtally/<digest of the folder>, which `.tally/home` names from then on; nothing of the
person's is opened up. In the home, `server/` is the server's own, closed to everybody else; so a Unix socket in
there needs no password. The system allows a socket's path 107 bytes: a home too deep for that has its socket in a
private folder below /tmp.
"""

import contextlib
import fcntl
import hashlib
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sql.account import ServerFault, private_folder, run, server_account

SHARED: Final = Path("/var/lib/pgtally")
SHORT: Final = Path("/tmp")  # noqa: S108 - the folder made in it is checked to be ours
_LONGEST_SOCKET: Final = 107


@dataclass(frozen=True)
class Place:
    """A folder's place for its embedded server, made or not."""

    project: Path
    home: Path
    owner: pwd.struct_passwd | None

    @property
    def server(self) -> Path:
        return self.home / "server"

    @property
    def sockets(self) -> Path:
        if len(os.fsencode(self.server / ".s.PGSQL.5432")) <= _LONGEST_SOCKET:
            return self.server
        user = self.owner.pw_uid if self.owner else os.geteuid()
        return SHORT / f"tally-{user}-{_digest(self.home)}"

    def url(self, user: str, database: str) -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self.sockets), safe='')}&port=5432"

    def make(self) -> None:
        """Make the folders that are not there. Raises `ServerFault` when one that should be private is not."""
        mine = self.project / ".tally"
        _folder(mine)
        if self.home != mine:
            for folder in (SHARED, self.home):
                _folder(folder)
            (mine / "home").write_text(f"{self.home}\n")
        for folder in (self.server, self.sockets):
            private_folder(folder, self.owner)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the place, or raise `ServerFault` when another process holds it."""
        with (self.home / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                keeper = f"process {lock.read().strip() or '(unknown)'}"
                raise ServerFault(f"the embedded server in {self.home} is kept by {keeper}, still running") from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield


def place_of(project: Path) -> Place:
    """Return the place of a folder."""
    owner = server_account()
    mine = project / ".tally"
    with contextlib.suppress(FileNotFoundError):
        return Place(project, Path((mine / "home").read_text().removesuffix("\n")), owner)
    home = mine if owner is None or _enters(owner, project) else SHARED / _digest(project)
    return Place(project, home, owner)


def _folder(folder: Path) -> None:
    """Make a folder of ours; as root it is the server's user who has to pass through it."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
        if os.geteuid() == 0:
            folder.chmod(0o755)


def _enters(owner: pwd.struct_passwd, folder: Path) -> bool:
    with contextlib.suppress(ServerFault):
        run(["/bin/sh", "-c", 'cd "$1"', "sh", folder], owner)
        return True
    return False


def _digest(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]

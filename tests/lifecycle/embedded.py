"""The embedded server of a folder, looked at from outside."""

from pathlib import Path

from sql.place import place_of
from sql.server import Server


def server_of(folder: Path) -> Server:
    """Return the server that a folder has or would have, to see its processes and to kill them."""
    place = place_of(folder)
    return Server(place.server, Path("unused"), place.owner, place.sockets)

"""Which of a database's addresses is tried first: the one where a session was opened last.

libpq tries them in the order given. A machine that is gone without a word takes the whole connect timeout of every
session that is opened while it is away, and a request has little more than that. So the last one that answered goes
first. It is forgotten once it does not answer in time: a primary that was replaced and has not noticed still opens
sessions, and then commits nothing.
"""

from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Address(NamedTuple):
    """One entry of each list in a connection string; "" where that list has none."""

    host: str
    hostaddr: str
    port: str


class Addresses:
    """What one process knows of the databases that it connects to."""

    def __init__(self) -> None:
        self._last: dict[str, Address] = {}

    def in_order(self, conninfo: str) -> str:
        """Return the connection string with the address that answered last before the others."""
        given = addresses(conninfo)
        last = self._last.get(conninfo)
        if last not in given[1:]:
            return conninfo
        ordered = [last, *(each for each in given if each != last)]
        lists = {name: ",".join(getattr(each, name) for each in ordered) for name in Address._fields}
        return make_conninfo(conninfo, **{name: text for name, text in lists.items() if text.strip(",")})

    def answered(self, conninfo: str, host: str, port: int) -> None:
        """A session was opened with this host (a name, an address or a folder of sockets) at this port."""
        for each in addresses(conninfo):
            if host in {each.host, each.hostaddr} and each.port in {"", str(port)}:
                self._last[conninfo] = each
                return

    def forget(self, host: str, port: int) -> None:
        """Nothing came from there in time."""
        for conninfo, last in list(self._last.items()):
            if host in {last.host, last.hostaddr} and last.port in {"", str(port)}:
                self._last.pop(conninfo, None)


def addresses(conninfo: str) -> list[Address]:
    """Return the addresses in a connection string, in its order."""
    given = conninfo_to_dict(conninfo)
    lists = [str(given.get(name) or "").split(",") for name in Address._fields]
    count = max(len(each) for each in lists)
    # One port is everybody's.
    return [Address(*each) for each in zip(*(each * count if len(each) == 1 else each for each in lists), strict=False)]

"""Which of a database's addresses is tried first: the one where a session was opened last.

They are tried in the order given. A machine that is gone without a word takes the whole connect timeout of every
session that is opened while it is away, and a request has little more than that. So the last one that answered goes
first. One that did not answer in time, or cannot be written, goes last until a session is opened there again: a
primary that was replaced and has not noticed still opens sessions, and then commits nothing.
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
        self._first: dict[str, Address] = {}
        self._last: dict[str, Address] = {}

    def in_order(self, conninfo: str) -> str:
        """Return the connection string with the address that served last before the others, and one to shun after."""
        given = addresses(conninfo)
        first, last = self._first.get(conninfo), self._last.get(conninfo)
        ordered = sorted(given, key=lambda each: (each == last) - (each == first))
        if ordered == given:
            return conninfo
        lists = {name: ",".join(getattr(each, name) for each in ordered) for name in Address._fields}
        return make_conninfo(conninfo, **{name: text for name, text in lists.items() if text.strip(",")})

    def answered(self, conninfo: str, found: Address) -> None:
        """A session was opened there."""
        if (entry := _entry(conninfo, found)) is not None:
            self._first[conninfo] = entry
            if self._last.get(conninfo) == entry:
                self._last.pop(conninfo, None)

    def shun(self, conninfo: str, found: Address) -> None:
        """Nothing came from there in time, or nothing can be written there."""
        if (entry := _entry(conninfo, found)) is not None:
            self._last[conninfo] = entry
            if self._first.get(conninfo) == entry:
                self._first.pop(conninfo, None)


def _entry(conninfo: str, found: Address) -> Address | None:
    """Return the entry of a connection string that led there."""
    for each in addresses(conninfo):
        is_there = each.hostaddr == found.hostaddr if each.hostaddr else each.host == found.host
        if is_there and each.port in {"", found.port}:
            return each
    return None


def addresses(conninfo: str) -> list[Address]:
    """Return the addresses in a connection string, in its order."""
    given = conninfo_to_dict(conninfo)
    lists = [str(given.get(name) or "").split(",") for name in Address._fields]
    count = max(len(each) for each in lists)
    # One port is everybody's.
    return [Address(*each) for each in zip(*(each * count if len(each) == 1 else each for each in lists), strict=False)]

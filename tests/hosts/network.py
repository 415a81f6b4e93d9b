"""Hosts of the tests' own: network namespaces, each plugged into one bridge by a pair of veth.

A host that is cut off has its packets dropped in both directions, silently, and closes nothing: as when a cable is
pulled somewhere on the way.
"""

import subprocess
from typing import Final

import pytest

from tests.support.namespaces import Namespace
from tests.support.tools import tool

NETWORK: Final = "10.213.0.0/24"
LOSSES: Final = (["netem", "loss", "100%"], ["blackhole"])
"""Queueing disciplines that drop everything. Every kernel has the second, which does just that and nothing else."""


class Host:
    """One namespace with an address of its own, and its port on the bridge of another."""

    def __init__(self, name: str, number: int, switch: Namespace) -> None:
        self.name = name
        self.address = f"10.213.0.{number}"
        self.namespace = Namespace()
        self._switch = switch
        with switch.entered():
            _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", self.namespace.path)
            _run("ip", "link", "set", name, "master", "bridge", "up")
        with self.namespace.entered():
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
            _run("ip", "link", "set", "eth0", "up")

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}>"

    def cut(self) -> None:
        """Drop what it sends and what is sent to it, from now on."""
        self._drop("add", _loss(self._switch))

    def mend(self) -> None:
        self._drop("delete", [])

    def _drop(self, change: str, discipline: list[str]) -> None:
        for namespace, device in ((self.namespace, "eth0"), (self._switch, self.name)):
            with namespace.entered():
                _run("tc", "qdisc", change, "dev", device, "root", *discipline)


class Network:
    """Hosts on one bridge; the kernel removes it all after `close`, when their last process has ended."""

    def __init__(self, *names: str) -> None:
        try:
            self._switch = Namespace()
        except OSError as error:
            pytest.skip(f"NOT_RUN: a network namespace cannot be made here: {error.strerror}")
        with self._switch.entered():
            _run("ip", "link", "add", "bridge", "type", "bridge")
            _run("ip", "link", "set", "bridge", "up")
        self._hosts = {name: Host(name, number, self._switch) for number, name in enumerate(names, 1)}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def close(self) -> None:
        for namespace in (self._switch, *(host.namespace for host in self._hosts.values())):
            namespace.close()


def _loss(somewhere: Namespace) -> list[str]:
    """Return the first of `LOSSES` that this kernel has."""
    with somewhere.entered():
        for discipline in LOSSES:
            probe = [tool("tc"), "qdisc", "add", "dev", "bridge", "root", *discipline]
            if subprocess.run(probe, check=False, capture_output=True).returncode == 0:
                _run("tc", "qdisc", "delete", "dev", "bridge", "root")
                print(f"packets are dropped by: tc qdisc … {' '.join(discipline)}")
                return discipline
    raise AssertionError("this kernel drops no packets")


def _run(command: str, *arguments: str) -> None:
    done = subprocess.run([tool(command), *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, (command, arguments, done.stderr)

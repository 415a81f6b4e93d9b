"""Three PostgreSQL servers under Patroni, and etcd, on 127.0.0.1: made, broken, made whole again, removed.

etcd has one member only: what it decides about a lost majority is its own matter, not ours. Nothing breaks it here.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import randrange
from time import time
from typing import Any, Final

import psycopg

from sql.account import private_folder, server_account
from sql.binaries import reachable
from sql.server import SUPERUSER
from sql.throwaway import binaries, fast_place
from tests.cluster.machine import descendants, send
from tests.cluster.member import Member, start_machine
from tests.support.tools import tool
from tests.support.waiting import wait_until

TTL_SECONDS: Final = 20
"""How long a leader is trusted that says nothing; Patroni takes no less. A machine without power costs this."""
FAILOVER_SECONDS: Final = TTL_SECONDS + 40.0
"""In which a cluster has a primary again, also on a busy machine."""

SETTINGS: Final = {
    "ttl": TTL_SECONDS,
    "loop_wait": 1,
    "retry_timeout": 3,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    # A server that crashed is not waited for while another can take over.
    "primary_start_timeout": 0,
    "postgresql": {
        "use_pg_rewind": True,
        "remove_data_directory_on_rewind_failure": True,
        "remove_data_directory_on_diverged_timelines": True,
        "parameters": {
            "max_connections": 100,
            "wal_keep_size": "128MB",
            "wal_retrieve_retry_interval": "200ms",
            "wal_sender_timeout": "5s",
        },
    },
}


def is_short() -> bool:
    """Is only the part to run that every change must pass?"""
    return os.environ.get("TALLY_TEST_CLUSTER") == "short"


class Cluster:
    """The members, by the part each plays now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._owner = server_account()
        ports = free_ports(8)
        self._etcd_port, self._peer_port = ports[:2]
        self._etcd: subprocess.Popen[bytes] | None = None
        programs = reachable(binaries(), self._owner, folder)
        self.members = [
            Member(f"node{number}", folder / f"node{number}", programs, self._owner, *each, self._etcd_port, SETTINGS)
            for number, each in enumerate(zip(ports[2:5], ports[5:8], strict=True), 1)
        ]

    def __repr__(self) -> str:
        return f"<Cluster {self.roles()}>"

    def url(self, database: str, user: str, first: Member | None = None) -> str:
        """Return the URL of whichever server can be written; this member's address is tried first."""
        members = sorted(self.members, key=lambda member: member is not first)
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in members)
        return f"postgresql://{user}@{hosts}/{database}?target_session_attrs=read-write"

    def start(self) -> None:
        self._start_etcd()
        for member in self.members:
            member.make()
            member.start()
        self.await_whole(90)

    def _start_etcd(self) -> None:
        data = private_folder(self.folder / "etcd", self._owner)
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        command = [tool("etcd"), "--name=etcd", f"--data-dir={data}/data", f"--initial-cluster=etcd={peer}"]
        command += [f"--{each}={client}" for each in ("listen-client-urls", "advertise-client-urls")]
        command += [f"--{each}={peer}" for each in ("listen-peer-urls", "initial-advertise-peer-urls")]
        self._etcd = start_machine(self._owner, command, data.with_suffix(".log"))
        wait_until(lambda: _listens(self._etcd_port), "etcd listens")

    def stop(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._stop_etcd)
            for member in self.members:
                stack.callback(member.stop)

    def _stop_etcd(self) -> None:
        if self._etcd is not None:
            send(descendants(self._etcd.pid), signal.SIGTERM)
            self._etcd.wait(20)
            if self._etcd.stdin:
                self._etcd.stdin.close()

    def roles(self) -> dict[str, str]:
        """Return each member's role and state as Patroni tells; nothing where nobody answers."""
        for member in self.members:
            status, said = member.ask("GET", "/cluster")
            if status == 200:
                return {each["name"]: f"{each['role']} {each['state']}" for each in said["members"]}
        return {}

    def member(self, role: str) -> Member:
        """Return the one `leader` or `sync_standby`."""
        (name,) = (name for name, found in self.roles().items() if found.startswith(f"{role} "))
        return next(member for member in self.members if member.name == name)

    @property
    def primary(self) -> Member:
        return self.member("leader")

    @property
    def standby(self) -> Member:
        """The standby that has confirmed every commit."""
        return self.member("sync_standby")

    def has_other_standby(self, old: Member) -> bool:
        """Does another standby than this one confirm every commit?"""
        return any(found.startswith("sync_standby ") and name != old.name for name, found in self.roles().items())

    def await_whole(self, seconds: float = FAILOVER_SECONDS, standby: str = "sync_standby") -> None:
        """Wait until there are a primary, a synchronous standby and another one, and the primary counts on it."""
        whole = sorted(["leader running", f"{standby} streaming", "replica streaming"])
        wait_until(lambda: sorted(self.roles().values()) == whole, "the cluster is whole", seconds, self.roles)

    def await_other_primary(self, old: Member) -> Member:
        """Wait until another one than this has taken over, and return it."""

        def found() -> Member | None:
            for member in self.members:
                if member is not old and member.role() == "primary" and query(member, _WRITABLE) == [(True,)]:
                    return member
            return None

        taken = wait_until(found, "another one has taken over", FAILOVER_SECONDS, self.roles)
        assert taken is not None
        return taken

    def mend(self) -> None:
        """Undo what a test did: everything runs, and is whole."""
        for member in self.members:
            member.thaw()
            if not member.processes():
                member.lose_power()
                member.start()
        if self._configuration() != SETTINGS:
            self.configure(SETTINGS)
        self.await_whole()

    def configure(self, settings: dict[str, Any]) -> None:
        """Change what Patroni keeps for the whole cluster, and return once every member has heard of it."""
        wait_until(lambda: self._any("PATCH", "/config", settings) == 200, f"{settings} are set", 30)
        changed_at = time()
        for member in self.members:
            wait_until(partial(member.has_heard_since, changed_at + 1), f"{member} has heard of {settings}", 30)

    def switch_over(self) -> None:
        """Let the standby take over as planned, and return once Patroni says so."""
        body = {"leader": self.primary.name, "candidate": self.standby.name}
        status, said = self.primary.ask("POST", "/switchover", body, seconds=FAILOVER_SECONDS)
        assert status == 200, said

    def _configuration(self) -> object:
        return next((said for member in self.members for status, said in [member.ask("GET", "/config")] if status), {})

    def _any(self, method: str, path: str, body: dict[str, Any]) -> int:
        return next((status for member in self.members if (status := member.ask(method, path, body)[0])), 0)


_WRITABLE: Final = "select not pg_is_in_recovery()"


@contextmanager
def started_cluster() -> Iterator[Cluster]:
    """Make a cluster; its folder is kept while `keep` is there, for a failed test."""
    folder = Path(tempfile.mkdtemp(prefix="tally-cluster-", dir=fast_place()))
    folder.chmod(0o755)
    cluster = Cluster(folder)
    try:
        try:
            cluster.start()
        except BaseException:
            tell_all(cluster)
            raise
        yield cluster
    finally:
        cluster.stop()
        if not (folder / "keep").exists():
            shutil.rmtree(folder)


def tell_all(cluster: Cluster) -> None:
    """Keep the cluster's folder, and print the end of each log, for pytest to show."""
    (cluster.folder / "keep").touch()
    print(f"--- kept: {cluster.folder}")
    for log in sorted(cluster.folder.glob("*.log")):
        last_words = "\n".join(log.read_text(errors="replace").splitlines()[-60:])
        print(f"--- the end of {log}\n{last_words}")


def query(member: Member, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
    """Ask one server as the superuser, whichever part it plays; a read waits for no standby."""
    url = f"postgresql://{SUPERUSER}@127.0.0.1:{member.port}/{database}"
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens at, below those that outgoing connections are given.

    A server that is down must find its port free when it comes back.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    while len(found) < count:
        port = randrange(10_000, max(lowest, 20_000))
        if port not in found and not _listens(port):
            found.append(port)
    return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

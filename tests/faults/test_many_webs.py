"""Many web processes on one database: the capacity is exact over all of them, and each keeps to few connections."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import repeating
from tests.support.database import Database
from tests.support.http import Client
from tests.support.program import Program
from tests.support.server import TestServer
from tests.support.service import Service, at_the_same_time
from tests.support.waiting import outlast, wait_until

OPEN = "select count(*) from tally.task where state in ('QUEUED', 'RUNNING')"
SESSIONS = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and starts_with(application_name, 'tally-web')"
)


@contextmanager
def sampled(look: Callable[[], Any]) -> Iterator[list[Any]]:
    """Look again and again while inside, and yield the list of what was seen."""
    over = threading.Event()
    seen: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not over.wait(0.005):
                seen.append(look())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="sampler")
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(30)
    assert not failures, failures
    assert not thread.is_alive()


def looker(database: Database, statement: str) -> Callable[[], int]:
    """Return what asks this over a connection of its own."""
    connection = database.connect("test-sampler")

    def look() -> int:
        row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return int(row[0])

    return look


def more_webs(service: Service, number: int, env: dict[str, str | None] | None = None) -> list[Program]:
    """Start so many more web processes; each listens on a port of its own, behind a balancer in real life."""
    return [service.web, *(service.run_program("falcon_app", env=env) for _ in range(number))]


def test_as_many_are_admitted_as_there_is_room_for_whoever_asks_which_web(service: Service) -> None:
    service.database.execute("update tally.queue set max_open = 25, paused_at = clock_timestamp()")
    service.start()
    webs = more_webs(service, 3)

    def client(web: Program) -> list[str | None]:
        return [service.submit(web=web).code for _ in range(5)]

    answers = at_the_same_time(*[lambda web=web: client(web) for web in webs * 4])

    assert Counter(code for each in answers for code in each) == {None: 25, "overloaded": 4 * 4 * 5 - 25}
    service.reconcile(open_tasks=25)


def test_the_open_count_never_passes_the_capacity_while_tasks_end_and_a_web_is_killed(service: Service) -> None:
    service.database.execute("update tally.queue set max_open = 7")
    service.start("--slots", "4")
    webs = more_webs(service, 2)
    doomed, killed = webs[-1], threading.Event()
    known = service.accepted()
    over = threading.Event()

    def client(web: Program) -> None:
        while not over.is_set():
            service.submit(web=web)

    with sampled(looker(service.database, OPEN)) as seen:
        threads = [threading.Thread(target=client, args=(web,)) for web in webs[:2] * 4]
        threads += [threading.Thread(target=until_killed, args=(service, doomed, killed)) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: answered(service, "overloaded") > 50, "the queue was full", seen=lambda: service.book[-1])
        doomed.kill()
        killed.set()
        asked = len(service.book)
        wait_until(lambda: len(service.book) > asked + 300, "the others went on", 60, lambda: len(service.book))
        over.set()
        for thread in threads:
            thread.join(30)

    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) > 50
    assert max(seen) == 7, "full, and never fuller"
    assert answered(service, None) > 50
    assert {entry.code for entry in service.book if entry.status} <= {None, "overloaded"}
    assert service.read(known) == 200
    service.await_all()
    service.reconcile()


def until_killed(service: Service, web: Program, killed: threading.Event) -> None:
    while not killed.is_set():
        service.submit(web=web)


def answered(service: Service, code: str | None) -> int:
    return sum(entry.code == code and entry.status > 0 for entry in list(service.book))


def database_sockets(webs: list[Program], server: TestServer) -> list[int]:
    """Return how many sockets to the server each web process holds: opened, being opened, or not yet closed."""
    remote = f":{server.port:04X} "
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines() if remote in line]
    to_the_server = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(remote.strip())}
    return [len(to_the_server.intersection(links(web))) for web in webs]


def links(web: Program) -> Iterator[str]:
    """Yield what each file descriptor of a process is."""
    for each in Path(f"/proc/{web.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            yield str(each.readlink())


@contextmanager
def busy(webs: list[Program], known: int) -> Iterator[None]:
    """While inside, clients of each web submit, cancel and read, four at a time, whatever they are answered."""

    def asks(api: Client) -> list[Callable[[], object]]:
        read = partial(api.get, f"/tasks/{known}")
        return [read, read, partial(api.cancel, known), partial(api.submit, "noop", {})]

    with repeating([ask for web in webs for ask in asks(Client(web.address))]):
        yield


@pytest.mark.parametrize("outage", ["stop", "freeze"])
def test_each_web_keeps_to_its_connections_under_load_in_an_outage_and_after_it(
    service: Service, server: TestServer, outage: str
) -> None:
    """One for admission, and as many as the setting says for reads and cancels."""
    env: dict[str, str | None] = {"TALLY_DATABASE_CONNECTIONS": "2"}
    service.start(env=env)
    webs = more_webs(service, 2, env)
    known = service.accepted()
    sessions = looker(service.database, SESSIONS)

    with sampled(lambda: database_sockets(webs, server)) as held, busy(webs, known):
        with sampled(sessions) as seen:
            await_crowd(service, 9)
        getattr(server, outage)()
        wait_until(lambda: all(probe(web) == 503 for web in webs), "no web is ready")
        outlast(4)
        server.bring_up()
        wait_until(lambda: all(probe(web) == 200 for web in webs), "every web is ready again")
        await_crowd(service, 9)

    assert max(seen) <= 9
    assert max(max(each) for each in held) <= 3
    assert service.database.value(SESSIONS) == 9, "and it keeps them"
    service.await_all(60)


def await_crowd(service: Service, sessions: int) -> None:
    """Hold up whatever asks for a task until the webs have so many sessions, which is all they may have."""
    holder = service.database.connect("test-holder")
    with holder.transaction():
        holder.execute("lock table tally.task in access exclusive mode")
        wait_until(
            lambda: service.database.value(SESSIONS) == sessions,
            f"the webs have {sessions} sessions",
            seen=lambda: service.database.value(SESSIONS),
        )


def probe(web: Program) -> int:
    return Client(web.admin).get("/readyz").status


def test_a_dispatcher_listens_with_one_session_only(service: Service) -> None:
    """Each session that listens is woken by every notification of the database, and is waited for by its queue."""
    service.database.execute(f"alter database {service.database.name} set log_statement = 'all'")
    logged = len(service.database.server.log)
    service.start()
    other = service.run_dispatcher()
    tasks = [service.accepted() for _ in range(5)]
    service.await_all()
    service.api.cancel(tasks[0])

    # A statement of several lines goes on after a tab.
    said = r"\] tally:(\S+):(\S+) LOG:(?:.*\n\t)*?.*\blisten"
    found = re.findall(said, service.database.server.log[logged:])
    dispatchers = [identity(each) for each in (service.dispatcher, other)]

    assert sorted(found) == sorted((dispatcher, "session") for dispatcher in dispatchers)


def identity(dispatcher: Program) -> str:
    found = re.search(r"^ready dispatcher id=(\S+)", dispatcher.output, re.MULTILINE)
    assert found
    return found[1]

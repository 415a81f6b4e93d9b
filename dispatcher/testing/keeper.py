"""Keeps the server, or the databases, of a test session for as long as that lives, and removes all of it then.

The keeper is a process of its own, in a session of its own, that waits for the end of its standard input. A test
session holds the other end of that pipe: however it ends, by itself, by Ctrl-C or by SIGKILL, the kernel closes it,
and nothing is left behind. No signal is meant for the keeper: whoever ends the tests ends it.

It is told by its environment what to keep, since a URL may hold a password, and says what it made on one line.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from dispatcher.testing.databases import Databases
from sql.account import GivenUp, ServerFault
from sql.errors import TallyError
from sql.process import run_to_the_end
from sql.throwaway import binaries, fast_place, socket_url, throwaway_server

URL_VARIABLE: Final = "TALLY_TEST_SERVER_URL"
_END_SECONDS: Final = 60.0


@contextmanager
def kept(server_url: str | None) -> Iterator[Databases]:
    """Have a keeper, and yield the databases it keeps: on the server of this URL, else on one that it makes.

    Raises `ServerFault` when that can't be, or when something is left afterwards.
    """
    command = [sys.executable, "-P", "-m", __spec__.name]
    environment = {**os.environ, URL_VARIABLE: server_url or ""}
    # Of the terminal's signals none reaches it.
    keeper = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert keeper.stdin  # noqa: S101 - both are pipes
    assert keeper.stdout  # noqa: S101
    try:
        told = json.loads(keeper.stdout.readline() or '{"fault": "the keeper of the test server has died"}')
        if "fault" in told:
            raise ServerFault(told["fault"])
        yield Databases(**told)
    finally:
        # A word, and not only the end of the input: a process that was forked meanwhile may hold the pipe open.
        with suppress(BrokenPipeError), keeper.stdout, keeper.stdin as ending:
            ending.write("end\n")
        if keeper.wait(_END_SECONDS) != 0:
            raise ServerFault("something of the test server may be left: its keeper failed")


def main() -> int:
    """Make, tell, wait for the end, and remove."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with ExitStack() as until_the_end:
        try:
            databases = until_the_end.enter_context(_server(os.environ.get(URL_VARIABLE)))
        except GivenUp:
            return 0
        except (TallyError, OSError, ValueError) as error:
            _tell(fault=str(error))
            return 0
        _tell(url=databases.url, template=databases.template)
        select.select([sys.stdin], [], [])
    return 0


def _tell(**told: str) -> None:
    print(json.dumps(told), flush=True)  # noqa: T201 - this is its answer


@contextmanager
def _server(url: str | None) -> Iterator[Databases]:
    if url:
        databases = Databases(url)
        try:
            databases.make_template()
            yield databases
        finally:
            databases.drop_all()
    else:
        with _throwaway() as made:
            databases = Databases(made)
            databases.make_template()
            yield databases


@contextmanager
def _throwaway() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="tally-test-", dir=fast_place()))
    try:
        folder.chmod(0o755)
        server = throwaway_server(folder, binaries())
        try:
            server.make(durable=False, give_up=_is_over)
            server.start(give_up=_is_over)
            yield socket_url(server)
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder)


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    run_to_the_end(main)

"""What `sql.connect` promises of every attempt to connect."""

import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from sql.connect import connect
from sql.errors import DatabaseLost


def sockets() -> set[str]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(each.readlink()))
    return {each for each in found if each.startswith("socket:")}


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_an_attempt_that_ran_out_of_time_keeps_no_socket() -> None:
    """Not even until the next garbage collection: a server that was frozen would make a session of each."""
    patience = timedelta(seconds=2)
    with socket.create_server(("127.0.0.1", 0)) as silent, no_garbage_collected():
        url = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/tally"
        before = sockets()

        with pytest.raises(DatabaseLost, match="timeout"):
            connect(url, name="test", connect_timeout=patience, statement_timeout=patience)

        assert sockets() == before

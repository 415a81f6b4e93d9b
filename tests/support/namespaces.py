"""Network namespaces of the tests' own, where programs are started as on hosts of their own.

A namespace here has no name: the kernel removes it, with what is in it, when its last user is gone, also when a test
was killed. Only the calling thread enters one; a program that it starts there, and a socket that it opens, stay there.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

_CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace that is kept until `close`, or until its last process ends. Raises `OSError`."""

    def __init__(self) -> None:
        with _way_back():
            _call(_LIBC.unshare, _CLONE_NEWNET)
            self._fd = _own_namespace()

    @property
    def path(self) -> str:
        """Where `ip` finds it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While inside, this thread is in the namespace."""
        with _way_back():
            _call(_LIBC.setns, self._fd, _CLONE_NEWNET)
            yield

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def another_namespace() -> Iterator[Namespace]:
    """Make a namespace; where that is not allowed the test was not run."""
    try:
        namespace = Namespace()
    except OSError as error:
        pytest.skip(f"NOT_RUN: a network namespace cannot be made here: {error.strerror}")
    try:
        yield namespace
    finally:
        namespace.close()


def _own_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def _way_back() -> Iterator[None]:
    here = _own_namespace()
    try:
        yield
    finally:
        _call(_LIBC.setns, here, _CLONE_NEWNET)
        os.close(here)


def _call(function: "ctypes._FuncPointer", *arguments: int) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

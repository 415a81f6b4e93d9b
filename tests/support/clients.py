"""Clients: calls made over and over, each by a thread of its own, for as long as a test has them."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(calls: Iterable[Callable[[], object]], pause: float = 0.05, patience: float = 30) -> Iterator[None]:
    """While inside, make each of these calls again and again, with a pause of so many seconds before each time.

    What one raises ends its client, and is shown at the end. `patience`: seconds for the last calls to end.
    """
    over = threading.Event()
    failures: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            while not over.wait(pause):
                call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,), name=f"client-{n}") for n, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(patience)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures, failures

"""A TCP proxy before the database that a test can freeze, mute, cut off and close.

One thread and one selector. Whatever a test asks for is done by that thread between two turns, so a test that
returns from `freeze` knows that nothing more is forwarded.
"""

import selectors
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final
from urllib.parse import urlsplit, urlunsplit

_CHUNK: Final = 64 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Pipe:
    """One direction of a connection: what came in and has not gone out yet."""

    def __init__(self, source: socket.socket, target: socket.socket, *, is_reply: bool) -> None:
        self.source = source
        self.target = target
        self.is_reply = is_reply
        self.waiting = b""
        self.ended = False
        self.muted = False


class Proxy:
    """Forwards 127.0.0.1:`port` to a target until it is told otherwise."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pipes: list[Pipe] = []
        self._frozen = False
        self._muted = False
        self._running = True
        self._asked: SimpleQueue[tuple[Callable[[], object], threading.Event]] = SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Proxy {self.port} to {self._target} {len(self._pipes) // 2} connections>"

    def url_for(self, url: str) -> str:
        """Return the same URL with this proxy in the server's place."""
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        netloc = f"{user}@127.0.0.1:{self.port}" if user else f"127.0.0.1:{self.port}"
        return urlunsplit(parts._replace(netloc=netloc))

    def freeze(self) -> None:
        """Forward nothing and keep everything open, as a lost network does."""
        self._do(lambda: setattr(self, "_frozen", True))

    def thaw(self) -> None:
        """Forward again, both ways."""
        self._do(self._flow)

    def mute(self) -> None:
        """Forward requests and hold replies back."""
        self._do(lambda: setattr(self, "_muted", True))

    def mute_open(self) -> None:
        """Hold back the replies of the connections there are; later ones flow."""

        def mute() -> None:
            for pipe in self._pipes:
                pipe.muted = pipe.is_reply

        self._do(mute)

    def strand(self) -> None:
        """Forward nothing more on what is open now, and keep it open, as when a machine vanishes; what is new flows."""

        def strand() -> None:
            for pipe in self._pipes:
                pipe.muted = True

        self._do(strand)

    def cut(self) -> None:
        """Reset every connection; what was held back is lost."""
        self._do(self._cut)

    def refuse(self) -> None:
        """Refuse new connections."""
        self._do(self._refuse)

    def accept(self) -> None:
        """Accept connections again, at the same port."""
        self._do(self._accept_again)

    def close(self) -> None:
        if self._thread.is_alive():
            self._do(lambda: setattr(self, "_running", False))
        self._thread.join(10)

    def _do(self, action: Callable[[], object]) -> None:
        done = threading.Event()
        self._asked.put((action, done))
        self._wake.send(b"x")
        assert done.wait(10), f"{self} does not answer"

    def _run(self) -> None:
        while self._running:
            self._turn()
        self._cut()
        self._refuse()
        self._wake.close()
        self._woken.close()

    def _turn(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if self._listener and not self._frozen:
                selector.register(self._listener, selectors.EVENT_READ)
            readers = {pipe.source: pipe for pipe in self._flowing() if not pipe.waiting and not pipe.ended}
            writers = {pipe.target: pipe for pipe in self._flowing() if pipe.waiting}
            for each in {**readers, **writers}:
                reads = selectors.EVENT_READ if each in readers else 0
                selector.register(each, reads | (selectors.EVENT_WRITE if each in writers else 0))
            ready = [(key.fileobj, events) for key, events in selector.select()]
        for end, happened in ready:
            if end is self._woken:
                self._obey()
            elif end is self._listener:
                self._connect()
            elif isinstance(end, socket.socket):
                if happened & selectors.EVENT_READ and end.fileno() >= 0:
                    self._receive(readers[end])
                if happened & selectors.EVENT_WRITE and end.fileno() >= 0:
                    self._forward(writers[end])

    def _flowing(self) -> list[Pipe]:
        if self._frozen:
            return []
        return [pipe for pipe in self._pipes if not (pipe.muted or (self._muted and pipe.is_reply))]

    def _obey(self) -> None:
        self._woken.recv(_CHUNK)
        while not self._asked.empty():
            action, done = self._asked.get()
            action()
            done.set()

    def _connect(self) -> None:
        assert self._listener
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            self._reset(client)
            return
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pipes += [Pipe(client, server, is_reply=False), Pipe(server, client, is_reply=True)]

    def _receive(self, pipe: Pipe) -> None:
        try:
            pipe.waiting = pipe.source.recv(_CHUNK)
        except OSError:
            self._forget(pipe)
            return
        if not pipe.waiting:
            pipe.ended = True
            with suppress(OSError):
                pipe.target.shutdown(socket.SHUT_WR)
            if all(other.ended for other in self._pipes if pipe.source in (other.source, other.target)):
                self._forget(pipe)

    def _forward(self, pipe: Pipe) -> None:
        try:
            sent = pipe.target.send(pipe.waiting)
        except OSError:
            self._forget(pipe)
            return
        pipe.waiting = pipe.waiting[sent:]

    def _forget(self, pipe: Pipe) -> None:
        self._pipes = [other for other in self._pipes if pipe.source not in (other.source, other.target)]
        pipe.source.close()
        pipe.target.close()

    def _flow(self) -> None:
        self._frozen = self._muted = False
        for pipe in self._pipes:
            pipe.muted = False

    def _cut(self) -> None:
        for pipe in self._pipes:
            self._reset(pipe.source)
        self._pipes = []

    def _refuse(self) -> None:
        if self._listener:
            self._listener.close()
            self._listener = None

    def _accept_again(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))

    @staticmethod
    def _reset(end: socket.socket) -> None:
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        end.close()


MakeProxy = Callable[[str, int], Proxy]

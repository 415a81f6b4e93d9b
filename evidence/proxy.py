"""A TCP proxy before the database, which stands for a network: it can freeze, hold replies back, and cut off.

Two threads a connection, one for each direction. What is read is sent on under one lock, so a step that returns from
`freeze` knows that nothing more passes.
"""

import socket
import struct
import threading
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from evidence.journal import Journal

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards 127.0.0.1:`port` to the server of a URL until it is told otherwise."""

    def __init__(self, journal: Journal, url: str) -> None:
        self._journal = journal
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.port}"))
        self._turn = threading.Condition()
        self._requests_pass = self._replies_pass = True
        self._ends: set[socket.socket] = set()
        self._ended: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def freeze(self) -> None:
        """Let nothing pass and keep everything open, as a lost network does."""
        self._let("network frozen", requests=False, replies=False)

    def mute(self) -> None:
        """Let requests pass and hold replies back."""
        self._let("replies held back", requests=True, replies=False)

    def thaw(self) -> None:
        """Let everything pass, also what was held back."""
        self._let("network thawed", requests=True, replies=True)

    def cut(self) -> None:
        """Reset every connection; what was held back is lost. New ones are let pass."""
        with self._turn:
            for end in self._ends:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                    # Wakes the thread that waits for it, which closing alone does not.
                    end.shutdown(socket.SHUT_RD)
                end.close()
            self._ends, self._ended = set(), set()
        self._let("network cut", requests=True, replies=True)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _let(self, event: str, *, requests: bool, replies: bool) -> None:
        with self._turn:
            self._requests_pass, self._replies_pass = requests, replies
            self._turn.notify_all()
        self._journal.event(event)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target, timeout=5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                with self._turn:
                    self._ends |= {client, server}
                for source, target, is_reply in ((client, server, False), (server, client, True)):
                    target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._carry, args=(source, target, is_reply), daemon=True).start()

    def _end(self, source: socket.socket, target: socket.socket) -> None:
        """One direction is over; with the other, the connection is."""
        target.shutdown(socket.SHUT_WR)
        self._ended.add(source)
        if target in self._ended:
            for end in (source, target):
                end.close()
                self._ends.discard(end)
                self._ended.discard(end)

    def _carry(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        with suppress(OSError):
            while True:
                chunk = source.recv(65536)
                with self._turn:
                    self._turn.wait_for(lambda: self._replies_pass if is_reply else self._requests_pass)
                    if not chunk:
                        self._end(source, target)
                        return
                    target.sendall(chunk)

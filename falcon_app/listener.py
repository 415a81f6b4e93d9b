"""A listener: waitress's server with a thread of its own that can be drained, and clients that cannot starve others.

Two of them serve the public API and the admin one, with nothing in common, so that the second answers when the first
is full. A client has `idle` seconds for each thing it has to do: to send a request, to go on with one, to read
an answer. When more connections are open than allowed, the one that has kept us waiting longest is closed.
"""

import errno
import logging
import resource
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from falcon_app.channels import FRAMING, LINGER_SECONDS, Channel
from falcon_app.settings import Address
from sql.settings import Settings

BACKLOG: Final = 1024
SPARE_CONNECTIONS: Final = 64
"""Accepted beyond the limit, so that there is one to choose for closing."""
SPARE_FILES: Final = 512
"""For the sessions of the database, the admin listener, and bodies too large to be kept in memory."""
UNFINISHED_SECONDS: Final = 1.0
"""How long a drain waits for the rest of a request that has begun to arrive."""
TURN_SECONDS: Final = 0.05
TIDY_UP_SECONDS: Final = 0.5
"""For idle threads to end, whatever the deadline."""

log = logging.getLogger("tally.web")
logging.getLogger("waitress").setLevel(logging.WARNING)
"""A client that went away is no event."""


def bind(address: Address) -> socket.socket:
    """Return a listening socket. Raises `OSError` when the address is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server(address, family=family, backlog=BACKLOG)


def allowed_connections(wanted: int) -> int:
    """Raise this process's limit of open files as far as that takes; return how many connections it then allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_FILES
    if soft < needed:
        soft = min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = max(1, min(wanted, soft - SPARE_FILES))
    if allowed < wanted:
        log.warning("web.few_files connections=%d wanted=%d", allowed, wanted)
    return allowed


class _Threads(ThreadedTaskDispatcher):  # type: ignore[misc] # waitress has no types
    """The request threads, named."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__()
        self._name = name
        self.set_thread_count(count)

    def start_new_thread(self, target: Callable[[int], None], thread_no: int) -> None:
        threading.Thread(target=target, name=f"{self._name}-{thread_no}", args=(thread_no,), daemon=True).start()

    def add_task(self, task: Channel) -> None:
        with self.lock:
            self.queue.append(task)
            self.queue_cv.notify()


class _Served(threading.local):
    """Whose request this thread is answering."""

    channel: Channel | None = None


class _Server(TcpWSGIServer):  # type: ignore[misc] # waitress has no types
    """Accepts connections and closes those that keep it waiting."""

    channel_class = Channel
    served: _Served
    is_draining = False
    unanswered = 0
    """How many clients were cut off in a drain before they had their whole answer."""
    max_connections: int
    idle_seconds: float

    def handle_accept(self) -> None:
        super().handle_accept()
        if len(self.active_channels) > self.max_connections:
            self._make_room()

    def pull_trigger(self) -> None:
        """Wake the I/O thread; not from a request thread that leaves it nothing to do."""
        if self.served.channel is None or self.served.channel.concerns_io():
            super().pull_trigger()

    def add_task(self, task: Channel) -> None:
        if not task.put_off():
            task.due_since = time.monotonic()
            super().add_task(task)

    def accept(self) -> Any:
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE}:
                raise
            self._make_room()
            # The connection stays in the backlog, so that this would be tried again without a pause.
            time.sleep(TURN_SECONDS)
            return None

    def _make_room(self) -> None:
        """Close the connection whose client has kept us waiting longest, if there is one."""
        longest = max(list(self.active_channels.values()), key=Channel.waited, default=None)
        if longest is not None and longest.waited() > 0:
            longest.cut_off()

    def maintenance(self, _now: float) -> None:
        for channel in list(self.active_channels.values()):
            if channel.waited() > (LINGER_SECONDS if channel.awaited() == "close" else self.idle_seconds):
                channel.cut_off()

    def stop_accepting(self) -> None:
        """Take every connection that was made already, then close the port."""
        waiting = select.poll()
        waiting.register(self.socket, select.POLLIN)
        known = -1
        while waiting.poll(0) and len(self.active_channels) > known:
            known = len(self.active_channels)
            self.handle_accept()
        self.accepting = False
        wasyncore.dispatcher.close(self)

    def close_unowed(self, draining_since: float) -> None:
        """Close the connections that ask nothing; a request that is arriving has a moment to do so."""
        elapsed = time.monotonic() - draining_since
        for channel in list(self.active_channels.values()):
            limits = {"ask": 2 * TURN_SECONDS, "go on": UNFINISHED_SECONDS, "close": UNFINISHED_SECONDS}
            if elapsed > limits.get(channel.awaited() or "", float("inf")):
                channel.cut_off()


class Listener:
    """One address being served, by an I/O thread and some request threads."""

    def __init__(
        self,
        name: str,
        app: Any,
        listening: socket.socket,
        settings: Settings,
        *,
        threads: int,
        max_connections: int,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._app = app
        self._socket = listening
        self._thread_count = threads
        self._max_connections = max_connections
        self._max_body_bytes = settings.max_body_bytes
        self._idle = settings.idle.total_seconds()
        self._on_end = on_end
        self._map: dict[int, Any] = {}
        self._drains_by: float | None = None
        self._server: _Server
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.unanswered = 0

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return Address(host, port)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        adjustments = Adjustments(
            sockets=[self._socket],
            connection_limit=self._max_connections + SPARE_CONNECTIONS,
            max_request_body_size=(self._max_body_bytes + 1) * FRAMING - 1,
            max_request_header_size=64 * 1024,
            asyncore_use_poll=True,
            clear_untrusted_proxy_headers=True,
            log_socket_errors=False,
            ident="pgtally",
        )
        adjustments.cleanup_interval = min(self._idle / 4, 1.0)
        self._server = _Server(
            self._app,
            self._map,
            _sock=self._socket,
            dispatcher=_Threads(f"{self._name}-request", self._thread_count),
            adj=adjustments,
            bind_socket=False,
            sockinfo=(self._socket.family, self._socket.type, self._socket.proto, self._socket.getsockname()),
        )
        self._server.served = _Served()
        self._server.max_connections = self._max_connections
        self._server.idle_seconds = self._idle
        self._thread.start()

    def drain(self, deadline: float) -> None:
        """Accept no more, answer what was asked, then end; at the deadline in any case. Returns at once.

        Once the thread has ended, `unanswered` tells how many clients were left without their answer.
        """
        self._drains_by = deadline
        # The thread may see it by itself, and have closed its trigger by the time this pulls it.
        with suppress(OSError):
            self._server.pull_trigger()

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread. Returns whether it came."""
        self._thread.join(max(0.0, seconds))
        return not self.is_alive

    def _run(self) -> None:
        try:
            while self._drains_by is None:
                self._turn(min(1.0, self._idle / 4))
            self._run_drain()
        finally:
            self._end()

    def _turn(self, seconds: float) -> None:
        """Wait for events and handle them, as `wasyncore.poll2`, with one short question to each connection."""
        poll = select.poll()
        for file, each in list(self._map.items()):
            events = each.events() if isinstance(each, Channel) else select.POLLIN if each.readable() else 0
            if events:
                poll.register(file, events)
        for file, events in poll.poll(seconds * 1000):
            # Another's event may have closed it.
            if (each := self._map.get(file)) is not None:
                wasyncore.readwrite(each, events)

    def _run_drain(self) -> None:
        server = self._server
        server.is_draining = True
        server.stop_accepting()
        started = time.monotonic()
        while server.active_channels and time.monotonic() < (self._drains_by or 0.0):
            self._turn(TURN_SECONDS)
            server.maintenance(0.0)
            server.close_unowed(started)
        self.unanswered = server.unanswered + sum(channel.is_owed for channel in list(server.active_channels.values()))

    def _end(self) -> None:
        dispatcher = self._server.task_dispatcher
        dispatcher.shutdown(timeout=max(TIDY_UP_SECONDS, (self._drains_by or 0.0) - time.monotonic()))
        self.unanswered += len(dispatcher.threads)
        wasyncore.close_all(self._map)
        self._on_end()

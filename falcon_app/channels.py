"""An HTTP connection, stricter than waitress's: requests that may be read in two ways are refused and the connection
closed, a client that does not do its part in time is cut off, and every refusal is a problem document.

What waitress 3.0.2 does by itself, and why that is changed here:
- Content-Length beside Transfer-Encoding is accepted, `chunked, chunked` is decoded once, and HTTP/1.0 ignores
  Transfer-Encoding: each is a way to smuggle a request past a proxy. Now 400.
- `100 Continue` is sent though the body will be refused, or there is none, and then the body is waited for. Now not.
- A limit of so many bytes refuses a body of exactly that many, and counts a chunked body's framing.
- A connection is idle only when nothing moves on it: a byte now and then holds it for ever, and a response
  that is not read holds even its request thread. Now each wait for the client ends.
- A refused body that is still arriving resets the connection, and the refusal with it. Now the rest is
  read and dropped for a while.
- A chunk's line and a trailer may be of any length, and are read from their start again with every packet. Now 400.
- A request thread goes on with a client's next request before the answer is read, 16 MiB ahead, and then waits for the
  client to read. Now the next request waits, and no thread with it.
- The head of an answer is sent by itself, and the I/O thread is woken after every answer, to listen to the client
  again. Each costs a turn of the interpreter's lock. Now head and body leave together, and the client is listened to
  all the time; the I/O thread is woken when there is something for it to do.
- While a request thread is sending, its socket counts as writable for the I/O thread, which then turns in a loop, has
  nothing to do, and keeps the interpreter's lock from the very thread that it waits for. Now it looks again when
  that thread leaves something unsent.
"""

import select
import socket
from time import monotonic
from typing import Any, Final

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError, get_header_lines
from waitress.task import ErrorTask, WSGITask
from waitress.utilities import BadRequest, RequestEntityTooLarge

from falcon_app.errors import MEDIA_TYPE, Problem, problem_body

FRAMING: Final = 8
"""A chunked body may take this many times the limit in transit; decoded, it is held to the limit."""
LONGEST_LINE: Final = 8 * 1024
LINGER_SECONDS: Final = 2.0
DUE_SINCE: Final = "tally.due_since"
"""In a request's environment: the moment of `time.monotonic` when it was ready to be answered."""
_CODES: Final = {
    413: "body-too-large",
    431: "headers-too-large",
    500: "internal-error",
    501: "not-implemented",
}


class Parser(HTTPRequestParser):  # type: ignore[misc] # waitress has no types
    """Reads one request; `error` is set for one that is refused."""

    error: Any
    completed: bool

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        body = self.body_rcv
        limit = self.adj.max_request_body_size // FRAMING
        size = len(body) + body.chunk_remainder if self.chunked else self.content_length
        if self.error is None and size > limit:
            self.error = RequestEntityTooLarge(f"the limit is {limit} bytes")
            self.completed = True
        if self.chunked and not self.completed and len(body.control_line) + len(body.trailer) > LONGEST_LINE:
            self.error = BadRequest(f"a chunk's line or the trailer has more than {LONGEST_LINE} bytes")
            self.completed = True
        if self.completed:
            self.expect_continue = False
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            # A Content-Length of thousands of digits, or a URI that cannot be split.
            raise ParsingError(str(error)) from None
        if self.version not in {"1.0", "1.1"}:
            raise ParsingError("expected HTTP/1.0 or HTTP/1.1")
        fields = [line.partition(b":") for line in get_header_lines(header_plus.partition(b"\r\n")[2])]
        codings = [value.strip(b" \t").lower() for name, _, value in fields if name.lower() == b"transfer-encoding"]
        if not codings:
            return
        if codings != [b"chunked"] or self.version != "1.1":
            raise ParsingError("expected Transfer-Encoding to be chunked, once, in HTTP/1.1")
        if "CONTENT_LENGTH" in self.headers:
            raise ParsingError("Content-Length and Transfer-Encoding together")


class ProblemTask(ErrorTask):  # type: ignore[misc] # waitress has no types
    """Answers a request that never reached the application, and closes the connection."""

    def execute(self) -> None:
        error = self.request.error
        problem = Problem(_CODES.get(error.code, "bad-request"), error.body)
        body = problem_body(problem)
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", MEDIA_TYPE))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.channel.lingers = True
        self.write(b"" if getattr(self.request, "command", "") == "HEAD" else body)


class RequestTask(WSGITask):  # type: ignore[misc] # waitress has no types
    """Answers one request; the last one before a drain says that the connection will be closed."""

    def get_environment(self) -> dict[str, Any]:
        return {**super().get_environment(), DUE_SINCE: self.channel.due_since}

    def write(self, data: bytes) -> None:
        self.channel.hold()
        try:
            super().write(data)
        finally:
            self.channel.let_go()

    def execute(self) -> None:
        channel = self.channel
        # Under the lock, a pipelined request that is being added is seen.
        with channel.requests_lock:
            if channel.server.is_draining and len(channel.requests) == 1:
                self.set_close_on_finish()
        super().execute()


class Channel(HTTPChannel):  # type: ignore[misc] # waitress has no types
    """One connection: what it waits for, and since when."""

    parser_class = Parser
    error_task_class = ProblemTask
    task_class = RequestTask

    close_when_flushed: bool
    will_close: bool

    lingers = False
    answered = 0
    due_since = 0.0
    """Since when the next request waits for a thread, or has one."""
    _is_lingering = False
    _is_sending = False
    _held: list[bytes] | None = None
    _is_put_off = False
    _is_early = False
    """Has something arrived while a request was being answered? It is left unread until that is done."""
    _awaited: tuple[str, int] | None = None
    _awaited_since = 0.0

    @property
    def is_owed(self) -> bool:
        """Has this client sent a request whose answer is not wholly sent?"""
        return bool(self.requests) or self.total_outbufs_len > 0

    def awaited(self) -> str | None:
        """Say what the client has to do next; None while it is our turn."""
        if self.total_outbufs_len:
            return "read"
        if self.requests:
            return None
        if self.close_when_flushed or self.will_close or self._is_lingering:
            return "close"
        partial = self.request
        if partial is not None and (partial.headers_finished or partial.header_plus.strip()):
            return "go on"
        return "ask"

    def waited(self) -> float:
        """Return for how many seconds the client has been awaited to do one thing; asked regularly."""
        now, awaited = monotonic(), self.awaited()
        step = None if awaited is None else (awaited, self.answered)
        if step != self._awaited:
            self._awaited, self._awaited_since = step, now
        return 0.0 if step is None else now - self._awaited_since

    def cut_off(self) -> None:
        """Close the connection now, from the I/O thread; a request thread that writes to it is let go.

        waitress closes a connection once it can be written, which never comes for a client that does not read.
        """
        if self.server.is_draining and self.is_owed:
            self.server.unanswered += 1
        self.will_close = True
        self.handle_close()

    def service(self) -> None:
        self.server.served.channel = self
        try:
            super().service()
        finally:
            self.server.served.channel = None
        self.answered += 1

    def concerns_io(self) -> bool:
        """Has the I/O thread something to do for this connection, once a request was answered?"""
        was_early, self._is_early = self._is_early, False
        return bool(was_early or self.total_outbufs_len or self.will_close or self.close_when_flushed)

    def hold(self) -> None:
        """Keep what is written, until `let_go` sends it in one piece."""
        self._held = []

    def let_go(self) -> None:
        held, self._held = self._held, None
        if held:
            self.write_soon(b"".join(held))

    def write_soon(self, data: Any) -> int:
        if self._held is not None:
            self._held.append(data)
            return len(data)
        self._is_sending = True
        try:
            return int(super().write_soon(data))
        finally:
            self._is_sending = False
            if self.total_outbufs_len:
                self.server.pull_trigger()

    def writable(self) -> bool:
        return bool(self.will_close if self._is_sending else super().writable())

    def _flush_outbufs_below_high_watermark(self) -> None:
        """Never wait for the client in a request thread: at most one answer is unsent, see `put_off`."""

    def put_off(self) -> bool:
        """Leave the next request until the answer before it is sent, if some of that is left. Returns whether it is."""
        with self.outbuf_lock:
            self._is_put_off = self.connected and self.total_outbufs_len > 0
            return self._is_put_off

    def _go_on(self) -> None:
        """From the I/O thread: start the request that was put off, once there is nothing left to send."""
        with self.outbuf_lock:
            is_due = self._is_put_off and not self.total_outbufs_len
            self._is_put_off = self._is_put_off and not is_due
        if is_due:
            self.server.add_task(self)

    def events(self) -> int:
        """Return what the I/O thread waits for on this connection; asked at every turn, so the rule comes first.

        A client being answered is listened to, as who stopped would have to be told when to go on.
        """
        if self.total_outbufs_len or self.will_close or self.close_when_flushed or self._is_early:
            if self.writable():
                return select.POLLOUT
            return select.POLLIN if self.readable() else 0
        return select.POLLIN

    def readable(self) -> bool:
        is_being_answered = bool(self.requests) and not self._is_early
        return self._is_lingering or is_being_answered or bool(super().readable())

    def handle_read(self) -> None:
        if self.requests and not self._is_lingering:
            self._is_early = True
        else:
            super().handle_read()

    def received(self, data: bytes) -> bool:
        return True if self._is_lingering else bool(super().received(data))

    def handle_write(self) -> None:
        if not (self.lingers and self.close_when_flushed) or self.will_close:
            super().handle_write()
            self._go_on()
            return
        self._flush_exception(self._flush_some)
        if self.connected and not self.total_outbufs_len and not self.will_close:
            # The refusal is sent: say so, and let what is still coming run out.
            self.close_when_flushed = False
            self._is_lingering = True
            try:
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.will_close = True

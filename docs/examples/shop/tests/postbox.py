"""A mail server that takes what it is sent, and answers as a test wants: enough of SMTP for one mail at a time."""

import socketserver
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from threading import Thread

TAKEN = "250 taken"
HUNG_UP = ""


class Postbox(socketserver.TCPServer):
    """Listens on a port of 127.0.0.1 that the system chooses."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.received: list[Message] = []
        self.answers: deque[str] = deque()
        """What it says of the next mails; taken, where nothing is left. `HUNG_UP` ends the connection instead."""

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.server_address)


class _Session(socketserver.StreamRequestHandler):
    server: Postbox

    def handle(self) -> None:
        self._say("220 here")
        while word := self.rfile.readline().split(b" ")[0].strip().upper():
            match word:
                case b"DATA":
                    self._say("354 go on")
                    lines = list(iter(self.rfile.readline, b".\r\n"))
                    answer = self.server.answers.popleft() if self.server.answers else TAKEN
                    if answer == TAKEN:
                        self.server.received.append(message_from_bytes(b"".join(lines)))
                    if answer == HUNG_UP:
                        return
                    self._say(answer)
                case b"QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 fine")

    def _say(self, answer: str) -> None:
        self.wfile.write(f"{answer}\r\n".encode())


@contextmanager
def open_postbox() -> Iterator[Postbox]:
    """Yield a mail server, on a thread of its own."""
    with Postbox() as postbox:
        serving = Thread(target=postbox.serve_forever, kwargs={"poll_interval": 0.02}, name="postbox")
        serving.start()
        try:
            yield postbox
        finally:
            postbox.shutdown()
            serving.join()

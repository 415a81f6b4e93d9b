"""How other threads wake one that waits on files: it hears the bell among them, once for however many rings."""

from socket import socketpair


class Bell:
    """`ring` may be called from any thread; `hear` by the one that waits, before it looks at what the others left."""

    def __init__(self) -> None:
        self.file, self._clapper = socketpair()
        self._is_ringing = False

    def ring(self) -> None:
        if not self._is_ringing:
            self._is_ringing = True
            self._clapper.send(b"\0")

    def hear(self) -> None:
        self.file.recv(64)
        # Whoever rings from here on is heard again.
        self._is_ringing = False

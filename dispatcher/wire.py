"""What a dispatcher and a child of it say to each other: messages in frames over a pair of sockets.

A frame is the length of a message, four bytes, and the message in MessagePack. To the child goes `Setup`, once, then
`Run` and perhaps `Stop`, in turn; from it come `Ready` or `Broken`, once, then `Ended` or `Unsure` for each `Run`, and
`Logged` at any time.
"""

from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from dispatcher.messages import Ending
from sql.states import TaskState

LENGTH_BYTES: Final = 4
MOST_BYTES: Final = 2**29
"""Of a message; the largest result is half of it. Four bytes of a text are more."""


class Setup(Struct, array_like=True, tag=1, gc=False):
    """What a child needs to know before its first task."""

    modules: list[str]
    path: list[bytes]
    """Where Python looks for them."""
    log_level: int
    max_words: int
    max_depth: int
    max_result_bytes: int
    max_detail_bytes: int


class Run(Struct, array_like=True, tag=2, gc=False):
    """Run the body of this claim."""

    task: int
    attempt: int
    kind: str
    input: str
    begin_by: float
    """By `clock_with_sleep`, which is one for all processes of a machine; later it is not sure any more."""


class Stop(Struct, array_like=True, tag=3, gc=False):
    """The body that runs is to stop. SIGTERM comes with it; one that comes alone is somebody else's, and ignored."""

    timed_out: bool


class Ready(Struct, array_like=True, tag=1, gc=False):
    """It has imported everything and takes its first task."""


class Broken(Struct, array_like=True, tag=2, gc=False):
    """It cannot take any."""

    why: str


class Logged(Struct, array_like=True, tag=3, gc=False):
    """A record of its log."""

    logger: str
    level: int
    text: str


class Ended(Struct, array_like=True, tag=4, gc=False):
    """What the body of the last `Run` ended in: the members of an `Outcome`, and the memory that the child takes."""

    state: TaskState
    result: str | None
    error: str | None
    ending: Ending
    after_seconds: float | None
    resident_bytes: int


class Unsure(Struct, array_like=True, tag=5, gc=False):
    """It was too late to begin the last `Run` unasked: nothing has begun."""


ToChild: TypeAlias = Setup | Run | Stop
FromChild: TypeAlias = Ready | Broken | Logged | Ended | Unsure

_encoder: Final = Encoder()
TO_CHILD: Final = Decoder(ToChild)
FROM_CHILD: Final = Decoder(FromChild)


def frame(message: ToChild | FromChild) -> bytes:
    """Return a message as it goes over the wire."""
    encoded = _encoder.encode(message)
    return len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded


class Frames:
    """Bytes as they come, cut into messages as they were sent."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return what is whole now. Raises `ValueError` for what is no frame."""
        self._rest += data
        whole: list[bytes] = []
        at = 0
        while len(self._rest) - at >= LENGTH_BYTES:
            begin = at + LENGTH_BYTES
            length = int.from_bytes(self._rest[at:begin], "big")
            if length > MOST_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            end = begin + length
            if end > len(self._rest):
                break
            whole.append(bytes(self._rest[begin:end]))
            at = end
        del self._rest[:at]
        return whole

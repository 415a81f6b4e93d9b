"""Frames: whatever way they are cut on the way, messages come as they were sent."""

from hypothesis import given
from hypothesis import strategies as st

from dispatcher import wire

RUNS = st.builds(
    wire.Run,
    st.integers(0, 2**63 - 1),
    st.integers(1, 100),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3000),
    st.floats(0, 2**40),
)
MESSAGES = st.lists(RUNS | st.builds(wire.Stop, st.booleans()), max_size=5)


@given(MESSAGES, st.lists(st.integers(1, 2000), min_size=1))
def test_messages_come_whole_and_in_order_however_they_are_cut(messages: list[wire.ToChild], cuts: list[int]) -> None:
    stream = b"".join(map(wire.frame, messages))
    frames = wire.Frames()
    came: list[bytes] = []

    at = turn = 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        came += frames.feed(stream[at : at + step])
        at, turn = at + step, turn + 1

    assert [wire.TO_CHILD.decode(each) for each in came] == messages

"""The rungs of a body that is to stop, and how it is said to have ended."""

from signal import SIGKILL, SIGSEGV, SIGTERM

import pytest

from dispatcher.ladder import NEVER, Ladder
from dispatcher.messages import Ending


def test_without_a_limit_or_a_cancel_nothing_is_ever_due() -> None:
    ladder = Ladder(100, None, 5)

    assert ladder.due_at == NEVER
    assert ladder.step(1e9) is None


def test_a_limit_that_passes_brings_sigterm_and_after_the_grace_sigkill_once_each() -> None:
    ladder = Ladder(100, 10, 5)

    steps = [ladder.step(now) for now in (109.9, 110, 110, 114.9, 115, 1e9)]

    assert steps == [None, SIGTERM, None, None, SIGKILL, None]
    assert ladder.timed_out
    assert ladder.due_at == NEVER


def test_a_cancel_is_due_at_once_and_is_no_time_limit() -> None:
    ladder = Ladder(100, 10, 5)

    ladder.cancel(103)

    assert (ladder.due_at, ladder.step(103), ladder.due_at) == (103, SIGTERM, 108)
    assert not ladder.timed_out


def test_a_cancel_that_is_told_again_neither_repeats_nor_delays_a_step() -> None:
    ladder = Ladder(100, None, 5)
    ladder.cancel(103)
    ladder.step(103)

    ladder.cancel(107)

    assert [ladder.step(now) for now in (107, 108)] == [None, SIGKILL]


@pytest.mark.parametrize(
    ("steps", "own", "said"),
    [
        (0, Ending.STOPPED, Ending.STOPPED),
        (1, Ending.STOPPED, Ending.SIGTERM),
        (1, Ending.RETURNED, Ending.RETURNED),
        (2, Ending.RAISED, Ending.RAISED),
    ],
)
def test_a_body_that_stops_is_said_to_have_stopped_by_sigterm_where_that_was_sent(
    steps: int, own: Ending, said: Ending
) -> None:
    assert climbed(steps).ending(own) is said


@pytest.mark.parametrize(
    ("steps", "status", "said"),
    [
        (0, -SIGKILL, Ending.DIED),
        (0, 3, Ending.DIED),
        (1, -SIGTERM, Ending.SIGTERM),
        (1, -SIGKILL, Ending.DIED),
        (2, -SIGKILL, Ending.SIGKILL),
        (2, -SIGSEGV, Ending.DIED),
    ],
)
def test_a_process_is_said_to_have_died_unless_by_what_was_sent_last(steps: int, status: int, said: Ending) -> None:
    assert climbed(steps).ending_by(status) is said


def climbed(steps: int) -> Ladder:
    ladder = Ladder(0, 1, 1)
    for step in range(steps):
        ladder.step(step + 1)
    return ladder

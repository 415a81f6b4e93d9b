"""Whose silence counts, and which time does not."""

from dispatcher.pulse import Pulse
from tests.dispatcher.given import Clock


def test_a_thread_that_makes_no_turn_for_the_stall_limit_has_stalled() -> None:
    clock = Clock()
    pulse = Pulse(["loop", "outcomes"], 10, clock)

    for _ in range(9):
        clock.now += 1
        pulse.turn("loop")
        assert pulse.stalled() == []
    clock.now += 1

    assert pulse.stalled() == ["outcomes"]


def test_a_turn_ends_the_silence() -> None:
    clock = Clock()
    pulse = Pulse(["loop"], 3, clock)

    for _ in range(100):
        clock.now += 2
        assert pulse.stalled() == []
        pulse.turn("loop")


def test_time_in_which_nothing_ran_counts_against_nobody() -> None:
    clock = Clock()
    pulse = Pulse(["loop"], 10, clock)
    clock.now += 1
    assert pulse.stalled() == []

    clock.now += 86_400  # stopped, or asleep

    assert pulse.stalled() == []


def test_a_thread_that_stays_silent_after_a_pause_is_still_found() -> None:
    clock = Clock()
    pulse = Pulse(["loop"], 10, clock)
    clock.now += 86_400

    looks = 0
    while not pulse.stalled():
        clock.now += 1
        looks += 1

    assert looks == 8  # the pause counted as two seconds, and each look as one


def test_two_watchers_do_not_make_time_pass_faster() -> None:
    clock = Clock()
    pulse = Pulse(["loop"], 10, clock)

    for _ in range(9):
        clock.now += 1
        assert pulse.stalled() == pulse.stalled() == []
    clock.now += 1

    assert pulse.stalled() == ["loop"]

"""The deadlines of a drain, on no clock at all."""

from datetime import timedelta

from dispatcher.drain import NEVER, Drain


def a_drain() -> Drain:
    return Drain(timedelta(seconds=25), timedelta(seconds=2.5))


def test_without_a_signal_nothing_ends() -> None:
    drain = a_drain()

    assert (drain.has_begun, drain.give_up_at, drain.end_at) == (False, NEVER, NEVER)


def test_the_deadlines_count_from_the_signal_not_from_when_it_was_heard() -> None:
    drain = a_drain()

    assert drain.ask(103, asked_at=100)

    assert (drain.has_begun, drain.give_up_at, drain.end_at) == (True, 122.5, 125)


def test_a_second_signal_gives_up_at_once_and_keeps_the_reserve_for_writing() -> None:
    drain = a_drain()
    drain.ask(100, asked_at=100)

    assert not drain.ask(101, asked_at=100)

    assert (drain.give_up_at, drain.end_at) == (101, 103.5)


def test_a_signal_after_giving_up_moves_no_deadline_back() -> None:
    drain = a_drain()
    drain.ask(100, asked_at=100)

    drain.ask(124, asked_at=100)

    assert (drain.give_up_at, drain.end_at) == (122.5, 125)


def test_a_condemned_dispatcher_ends_within_a_whole_drain_and_no_later_than_it_was_to() -> None:
    drain = a_drain()
    drain.end_whole(50)
    assert drain.end_at == 75

    drain.ask(60, asked_at=60)
    assert drain.end_at == 75

    drain.end_within(0, 61)
    assert drain.end_at == 61

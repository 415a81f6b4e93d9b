"""The time limits of bodies in threads."""

from dispatcher.held import Held
from dispatcher.ladder import NEVER
from dispatcher.timers import Timers
from tests.dispatcher.given import a_claim


class Rung:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def test_each_passes_once_and_not_before_its_time() -> None:
    timers = Timers(Rung())
    first, second = Held(a_claim(1)), Held(a_claim(2))
    timers.begin(first, 110)
    timers.begin(second, 120)

    assert timers.next_at() == 110
    assert [timers.passed(now) for now in (109, 110, 111, 125)] == [[], [first], [], [second]]
    assert timers.next_at() == NEVER


def test_a_body_that_has_ended_passes_never() -> None:
    timers = Timers(Rung())
    held = Held(a_claim())
    timers.begin(held, 110)

    timers.end(held)
    timers.end(held)

    assert timers.passed(200) == []


def test_who_waits_is_rung_for_what_comes_sooner_and_for_nothing_else() -> None:
    rung = Rung()
    timers = Timers(rung)
    assert timers.next_at() == NEVER

    timers.begin(Held(a_claim(1)), 110)
    assert rung.times == 1

    timers.next_at()
    timers.begin(Held(a_claim(2)), 120)
    assert rung.times == 1
    timers.begin(Held(a_claim(3)), 105)
    assert rung.times == 2

"""How many children are started, and when."""

from dispatcher.ladder import NEVER
from dispatcher.population import LONGEST_BACKOFF, PATIENCE_SECONDS, Crowd, Population


def crowd(starting: int = 0, free: int = 0, busy: int = 0, waiting: int = 0, none_free_since: float = 0.0) -> Crowd:
    return Crowd(starting, free, busy, waiting, none_free_since)


def test_at_the_start_there_are_as_many_as_processors_or_slots() -> None:
    assert Population(8, 2).to_start(crowd(), 100) == 2
    assert Population(1, 2).to_start(crowd(), 100) == 1


def test_while_a_child_is_free_none_is_started() -> None:
    population = Population(8, 2)

    assert population.next_at(crowd(free=1, busy=3)) == NEVER
    assert population.to_start(crowd(free=1, busy=3), 1e9) == 0


def test_when_none_has_been_free_for_a_while_one_to_spare_is_started() -> None:
    population = Population(8, 2)
    all_busy = crowd(busy=2, none_free_since=100)

    assert population.next_at(all_busy) == 100 + PATIENCE_SECONDS
    assert population.to_start(all_busy, 100 + PATIENCE_SECONDS / 2) == 0
    assert population.to_start(all_busy, 100 + PATIENCE_SECONDS) == 1
    assert population.to_start(crowd(starting=1, busy=2, none_free_since=100), 101) == 0


def test_claims_that_wait_get_one_each_as_many_at_a_time_as_there_are_processors() -> None:
    population = Population(16, 4)

    assert population.to_start(crowd(busy=4, waiting=2), 100) == 3
    assert population.to_start(crowd(busy=4, waiting=9), 100) == 4
    assert population.to_start(crowd(starting=3, busy=4, waiting=9), 100) == 1


def test_there_are_never_more_than_slots() -> None:
    population = Population(4, 2)

    assert population.to_start(crowd(busy=3, waiting=1), 100) == 1
    assert population.to_start(crowd(busy=4), 100) == 0
    assert population.next_at(crowd(starting=1, busy=3)) == NEVER


def test_after_failures_in_a_row_the_next_start_is_later_and_after_a_success_it_is_not() -> None:
    population = Population(4, 2)

    for _ in range(20):
        population.failed(100)
        assert 100 < population.next_at(crowd()) <= 100 + LONGEST_BACKOFF.total_seconds()
        assert population.to_start(crowd(), 100) == 0
    latest = 0.0
    for _ in range(50):
        population.failed(100)
        latest = max(latest, population.next_at(crowd()))
    assert latest > 110

    population.succeeded()
    population.failed(200)
    assert population.next_at(crowd()) < 200.1

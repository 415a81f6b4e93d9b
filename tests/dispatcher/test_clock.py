"""The clock that tells how old the knowledge of a claim is."""

import time

import pytest

from dispatcher.clock import clock_with_sleep


def test_it_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel promises of one clock cannot be tried here; that it is that clock can."""
    monkeypatch.setattr("time.clock_gettime", lambda clock: {time.CLOCK_BOOTTIME: 7.0}[clock])

    assert clock_with_sleep() == 7.0


def test_a_system_without_it_has_the_monotonic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("time.CLOCK_BOOTTIME", raising=False)
    before = time.monotonic()

    assert before <= clock_with_sleep() <= time.monotonic()

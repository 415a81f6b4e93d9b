"""Shorter waits where the programs' own are about idle time only."""

import pytest


@pytest.fixture(autouse=True)
def _short_idle_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatcher.lanes.TURN_SECONDS", 0.02)
    monkeypatch.setattr("dispatcher.recovery.LOOK_SECONDS", 0.02)

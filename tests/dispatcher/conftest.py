"""Shorter waits where the programs' own are about idle time only, and the parts that several files test."""

import pytest

from tests.dispatcher.given import registered
from tests.dispatcher.looped import Looped
from tests.dispatcher.writer import Writer
from tests.support.database import Database


@pytest.fixture(autouse=True)
def _short_idle_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatcher.lanes.TURN_SECONDS", 0.02)
    monkeypatch.setattr("dispatcher.recovery.LOOK_SECONDS", 0.02)


@pytest.fixture
def writer(database: Database) -> Writer:
    return Writer(database, registered(database))


@pytest.fixture
def looped(database: Database) -> Looped:
    return Looped(database, registered(database))

"""What the fault tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bodies import Bodies
from tests.support.ledger import Ledger


@pytest.fixture
def bodies(ledger: Ledger, tmp_path: Path) -> Iterator[Bodies]:
    """Tasks that run until their gate opens, which it does at the latest when the test is over."""
    made = Bodies(ledger, tmp_path)
    yield made
    made.gate.touch()

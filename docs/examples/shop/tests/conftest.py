"""What these tests share."""

from collections.abc import Iterator

import pytest

from shop.mails import SERVER_VARIABLE
from shop.tests.postbox import Postbox, open_postbox


@pytest.fixture
def postbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Postbox]:
    """The mail server that `mail.send` hands over to while the test runs."""
    with open_postbox() as opened:
        monkeypatch.setenv(SERVER_VARIABLE, opened.address)
        yield opened

"""The session of bulk submits, which cannot be opened."""

from unittest.mock import Mock

import pytest

from sql.connect import Connection
from sql.errors import DatabaseLost
from tests.api.conftest import Api, assert_problem
from tests.api.test_bulk import echo, post


def test_a_session_that_cannot_be_opened_is_no_outage_for_single_submits(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_deadline: float) -> Connection:
        raise DatabaseLost("too many connections", sqlstate="53300")

    monkeypatch.setattr(api.bulk._session, "begin", refuse)
    lost = Mock(wraps=api.admission.availability.lost)
    monkeypatch.setattr(api.admission.availability, "lost", lost)

    assert_problem(post(api, [echo(1)]), 503, "database-away")

    assert api.post({"n": 1}).status_code == 202
    lost.assert_not_called()

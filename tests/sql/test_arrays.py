"""Arrays as text: what is sent is what the server reads."""

import pytest

from sql.arrays import array
from tests.support.database import Database

HARD = ["", "NULL", "null", '"', "\\", '\\"', "{a,b}", " padded ", "two\nlines", "\t", "'", "%s", "日本", None]


@pytest.mark.parametrize("values", [[], *([value] for value in HARD), HARD])
def test_texts_come_back_as_they_were(values: list[str | None], database: Database) -> None:
    assert database.value("select %s::text[]", (array(values),)) == values


def test_documents_come_back_as_they_were(database: Database) -> None:
    documents = ['{"a": "\\"quoted\\" \\\\ back"}', "[1, 2]", '"x"']

    assert database.value("select %s::jsonb[]::text[]", (array(documents),)) == documents

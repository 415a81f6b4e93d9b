"""The view text_stats: what the built-in kind counted, for reconciling by eye."""

import pytest

from tests.support.database import Database

COLUMNS = (
    "(token, queue, kind, input, state, attempt, claimed_by, claim_number, started_at, finished_at, result, error)"
)
RUN = "gen_random_uuid(), 1, now(), now()"


def insert(database: Database, kind: str, state: str, result: str | None, error: str | None) -> None:
    open_ = state == "QUEUED"
    claim = "null, null, null, null" if open_ else RUN
    database.execute(
        f"insert into tally.task {COLUMNS} select gen_random_uuid(), 'default', %s, '{{}}', %s, 1, {claim}, "
        "%s::jsonb, %s::jsonb",
        (kind, state, result, error),
    )


def test_counts_are_shown_of_what_succeeded_and_zeros_of_everything_else(database: Database) -> None:
    insert(database, "text.stats", "SUCCEEDED", '{"words": 2, "bytes": 6, "runes": 5}', None)
    insert(database, "text.stats", "FAILED", None, '{"reason": "no"}')
    insert(database, "text.stats", "QUEUED", None, None)
    insert(database, "echo", "SUCCEEDED", '{"words": 9}', None)

    rows = database.rows("select state, words, bytes, runes, cancel_requested from tally.text_stats order by id")

    assert rows == [("SUCCEEDED", 2, 6, 5, False), ("FAILED", 0, 0, 0, False), ("QUEUED", 0, 0, 0, False)]


@pytest.mark.parametrize("result", ["null", "[1]", '"text"', '{"words": "many"}', '{"words": 1.5}', '{"words": 1e30}'])
def test_an_odd_result_does_not_make_the_view_fail(database: Database, result: str) -> None:
    insert(database, "text.stats", "SUCCEEDED", result, None)

    rows = database.rows("select state, words, bytes, runes from tally.text_stats")

    assert rows == [("SUCCEEDED", None, None, None)]

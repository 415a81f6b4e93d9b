"""Rows of a caller's own transaction, and the count that is remembered."""

from tests.api.conftest import Api, assert_problem, row_count
from tests.support.database import Database


def test_a_callers_rows_that_are_committed_after_a_count_leave_less_room(api: Api, database: Database) -> None:
    database.execute("update tally.queue set max_open = 40")
    insert = "insert into tally.task (token, queue, kind, input) select gen_random_uuid(), 'default', 'echo', '{}'"
    caller = database.connect("caller")
    with caller.transaction():
        caller.execute(insert + " from generate_series(1, 35)")
        assert [api.post({"n": n}).status_code for n in range(5)] == [202] * 5

    assert_problem(api.post({"n": 5}), 503, "overloaded")
    assert row_count(database) == 40

"""A COMMIT that a request thread sent and nobody can settle."""

from time import monotonic

from tests.api.conftest import MakeApi, assert_problem
from tests.api.test_admission import on_commit
from tests.api.test_lost_commits import asleep
from tests.support.database import Database
from tests.support.proxy import MakeProxy
from tests.support.waiting import wait_until


def test_a_commit_that_nobody_can_settle_is_answered_in_time(
    make_api: MakeApi, database: Database, proxy: MakeProxy
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    api = make_api(way.url_for(database.url))
    on_commit(database, "new.input ? 'slow'", "perform pg_sleep(1);")
    assert [api.post({"n": n}).status_code for n in range(2)] == [202, 202]
    started = monotonic()
    answer = api.post_aside({"slow": 1})
    wait_until(lambda: asleep(database), "COMMIT was sent")

    way.freeze()

    assert_problem(answer.result(20), 504, "outcome-unknown")
    assert monotonic() - started < 2.8

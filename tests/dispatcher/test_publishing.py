"""What a dispatcher publishes of its kinds, and what the database then knows of them."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec

from dispatcher import Backoff
from dispatcher.publishing import published
from sql import statement
from tests.dispatcher.given import a_task
from tests.support.database import Database


class Report(msgspec.Struct):
    month: int


def of_report(input: Report) -> object:  # noqa: A002
    return input.month


def of_dict(input: dict[str, Any]) -> object:  # noqa: A002
    return input


def test_every_option_that_the_database_acts_on_is_published(database: Database) -> None:
    kinds = {
        "report.build": a_task(
            "report.build",
            of_report,
            slot="process",
            time_limit_seconds=0.5,
            max_attempts=3,
            backoff=Backoff(2, 3, timedelta(hours=1)),
            on_crash="retry",
            queue="reports",
        ),
        "été": a_task("été", of_dict),
    }

    database.execute(statement("queries/publish_kinds"), {"dispatcher": uuid4(), "kinds": published(kinds)})

    known = database.rows(
        "select kind, queue, input_schema, slot, time_limit_seconds, max_attempts, on_crash, backoff_first_seconds,"
        " backoff_factor, backoff_cap_seconds from tally.kind order by kind"
    )
    schema = kinds["report.build"].input_schema
    assert schema is not None
    assert known == [
        ("report.build", "reports", schema, "process", 0.5, 3, "retry", 2.0, 3.0, 3600.0),
        ("été", "default", None, "thread", None, 1, "fail", 1.0, 2.0, 600.0),
    ]
    assert database.value("select count(*) from tally.queue where name = 'reports'") == 1


def test_the_text_is_the_same_however_the_kinds_were_declared() -> None:
    one, other = a_task("one", of_report), a_task("other", of_dict)

    text = published({"one": one, "other": other})

    assert text == published({"other": other, "one": one})
    assert [row["kind"] for row in json.loads(text)] == ["one", "other"]
    assert published({}) == "[]"

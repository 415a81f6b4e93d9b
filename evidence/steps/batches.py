"""One row of an admission batch is refused by the database, and the others are admitted."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step
from evidence.together import in_one_batch

WORDS: Final = "this one is refused"


@step("batch-row-refused", "a trigger refuses one row of a batch of eight: 422 for it, 202 for the seven others")
def row_refused(stage: Stage) -> None:
    web = stage.web()
    good = partial(stage.client(web).submit, "echo", label="good")
    bad = partial(stage.client(web).submit, "echo", label="bad", insert_refuse=WORDS)
    with stage.database.fault("insert_refuse"):
        in_one_batch(stage, web, *[good] * 3, bad, *[good] * 4)
    # Before a dispatcher writes the rows again.
    stage.sql("select array_agg(id order by id) as ids from tally.task group by xmin::text", label="transactions")
    stage.dispatcher()
    stage.await_all()


@row_refused.must
def _(record: Record) -> Iterator[Claim]:
    bad = record.answer("bad")
    yield equal("the bad one is 422", [bad.status, bad.code], [422, "invalid-input"])
    yield Claim("in the trigger's words", bad.json["detail"], WORDS in bad.json["detail"])
    yield equal("and has no row", record.row("bad"), None)
    good = record.answers("good")
    yield equal("the others are 202", [each.status for each in good], [202] * 7)
    rows = [row["state"] for each in good for row in record.rows_of(each.identity)]
    yield equal("and SUCCEEDED", rows, ["SUCCEEDED"] * 7)
    together = sorted(len(row["ids"]) for row in record.sql("transactions"))
    yield equal("eight were one batch, tried by halves: 4, 2 and 1 together, and 1 before it", together, [1, 1, 2, 4])

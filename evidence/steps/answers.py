"""What answers mean: 404 and 400 leave nothing behind, and 202 is not success."""

import json
from collections.abc import Iterator

from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step


@step("requests-refused", "a body that is not JSON is 400, an unknown id 404, and neither leaves a row")
def refused(stage: Stage) -> None:
    api = stage.client(stage.web())
    api.post("/tasks", '{"text": "Go one"', label="broken")
    api.post("/tasks", "", label="empty")
    api.get("/tasks/4711", label="unknown")
    stage.sql("select count(*) as rows from tally.task", label="rows")


@refused.must
def _(record: Record) -> Iterator[Claim]:
    yield equal(
        "a broken body is 400", [record.answer("broken").status, record.answer("broken").code], [400, "malformed-body"]
    )
    yield equal("an empty body is 400", record.answer("empty").status, 400)
    yield equal(
        "an unknown id is 404", [record.answer("unknown").status, record.answer("unknown").code], [404, "not-found"]
    )
    yield equal("no row", record.sql("rows"), [{"rows": 0}])


@step("accepted-is-not-succeeded", "both are 202; one SUCCEEDED with 2/6/6 in SQL, the other FAILED with words 0")
def accepted(stage: Stage) -> None:
    api = stage.client(stage.web())
    stage.dispatcher(env={"TALLY_MAX_WORDS": "3"})
    for label, text in (("two words", "Go one"), ("four words", "one two three four")):
        answer = api.post("/tasks", json.dumps({"text": text}), label=label)
        if answer.task_id is not None:
            api.follow(answer.task_id, label=f"{label}, followed")
    stage.sql("select * from tally.text_stats order by id", label="statistics")


@accepted.must
def _(record: Record) -> Iterator[Claim]:
    for label in ("two words", "four words"):
        yield equal(f"{label}: 202", record.answer(label).status, 202)
    ids = [record.answer(label).task_id for label in ("two words", "four words")]
    counted = ("state", "words", "bytes", "runes")
    rows = {row["id"]: [row[name] for name in counted] for row in record.sql("statistics")}
    yield equal("two words are SUCCEEDED 2/6/6 in SQL", rows.get(ids[0]), ["SUCCEEDED", 2, 6, 6])
    yield equal("four words are FAILED with zeros in SQL", rows.get(ids[1]), ["FAILED", 0, 0, 0])
    yield equal("the reason", record.reason("four words"), "text has 4 words, the limit is 3")
    yield equal(
        "HTTP reads the same",
        [record.answers(f"{label}, followed")[-1].json["state"] for label in ("two words", "four words")],
        ["SUCCEEDED", "FAILED"],
    )

"""SIGKILL at random moments under load, and the ledger each time.

Each kill is a round. Threads submit all the while; at a random moment one program, or both, or PostgreSQL with them,
are killed and started again at once; when a submit has been accepted and has succeeded, the load stops, and once no
task of the round is open its rows are read, to be compared with its answers. Half of the threads send an
Idempotency-Key: what was left unanswered is sent again under it, and must then be one row. The others send none: a
row of theirs whose submit was never answered may be there or not.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from random import Random

from evidence.client import Client
from evidence.programs import Program
from evidence.record import OPEN, Exchange, Record, Row, identity
from evidence.stage import Stage
from evidence.step import Claim, equal, step

THREADS = 6
WITH_A_KEY = 3
BACK_SECONDS = 30
VICTIMS = (("dispatcher",), ("web",), ("dispatcher", "web"))
EVERY_SO_MANY_POSTGRESQL_TOO = 8


class Service:
    """Both programs, at one address whatever happens to them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._running: dict[str, Program] = {"web": stage.web(), "dispatcher": stage.dispatcher()}
        self.api = stage.client(self._running["web"], timeout=10)
        self._listen = "{}:{}".format(*self.api.address)

    def kill_and_start(self, victims: tuple[str, ...]) -> None:
        for each in victims:
            if each == "postgresql":
                self._stage.cluster.kill()
            else:
                self._running[each].kill()
        for each in victims:
            if each == "web":
                self._running[each] = self._stage.web("--listen", self._listen, until="")
            if each == "dispatcher":
                self._running[each] = self._stage.dispatcher(until="")
        if "postgresql" in victims:
            self._stage.cluster.start()

    def stop(self) -> dict[str, int]:
        return {name: program.stop() for name, program in self._running.items()}


class Load:
    """Threads that submit until they are told to stop; `answers` is what came of it."""

    def __init__(self, api: Client, round_: str, seed: int) -> None:
        self.answers: list[Exchange] = []
        self._api = api
        self._round = round_
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._submit, args=(Random(f"{seed} {round_} {number}"), number < WITH_A_KEY))
            for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _submit(self, chance: Random, with_a_key: bool) -> None:
        while not self._stop.wait(chance.uniform(0.01, 0.08)):
            marker = f"{self._round} {chance.getrandbits(64):016x}"
            body: dict[str, object] = {"kind": "echo", "input": {"marker": marker}}
            if chance.random() < 0.3:
                body = {"kind": "sleep", "input": {"marker": marker, "seconds": chance.uniform(0.02, 0.5)}}
            elif chance.random() < 0.2:
                body = {"text": marker}
            headers = {"Idempotency-Key": marker} if with_a_key else None
            self.answers.append(self._api.post("/tasks", json.dumps(body), headers, label=self._round))


@step(
    "kills", "SIGKILL at random moments under load; after every one the ledger reconciles, nothing is lost", last=True
)
def kills(stage: Stage) -> None:
    chance = Random(stage.seed)
    service = Service(stage)
    for number in range(1, stage.kills + 1):
        round_ = f"round {number}"
        victims = VICTIMS[number % len(VICTIMS)]
        if number % EVERY_SO_MANY_POSTGRESQL_TOO == 0:
            victims = (*victims, "postgresql")
        load = Load(service.api, round_, stage.seed)
        try:
            _a_moment(chance)
            stage.event("kill", round=round_, victims=victims)
            service.kill_and_start(victims)
            _back(stage, service.api, round_)
        finally:
            load.stop()
        for each in load.answers:
            if each.status is None and each.key:
                service.api.post("/tasks", each.sent, each.sent_headers, label=round_)
        stage.await_all(BACK_SECONDS)
        stage.sql(_ROUND, label=round_, round=f"{round_} %")
    stage.event("stopped", statuses=service.stop())


_ROUND = """
select id, kind, input, state, error ->> 'reason' as reason, attempt
from tally.task
where coalesce(input ->> 'marker', input ->> 'text') like %(round)s
order by id
"""


def _a_moment(chance: Random) -> None:
    threading.Event().wait(chance.uniform(0.05, 1.2))


def _back(stage: Stage, api: Client, round_: str) -> None:
    """Wait until a submit is accepted and its task has succeeded."""
    tries = iter(range(10**6))

    def accepted() -> int:
        answer = api.submit("echo", label=round_, marker=f"{round_} back {next(tries)}")
        return (answer.status == 202 and answer.task_id) or 0

    task = stage.wait_until(accepted, "a submit is accepted", BACK_SECONDS, every=0.1)
    stage.wait_until(lambda: stage.state(task) == "SUCCEEDED", "the service works", BACK_SECONDS, every=0.05)
    stage.event("back", round=round_)


def round_problems(answers: list[Exchange], rows: list[Row]) -> list[str]:
    """Compare what a round was answered with its rows, as they were when it was over."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(identity(row["kind"], row["input"]), []).append(row)
    wrong = [f"row {row['id']} is {row['state']}" for row in rows if row["state"] in OPEN]
    wrong += [f"{each}: {len(rows)} rows" for each, rows in found.items() if len(rows) > 1]
    submitted = {each.identity for each in answers}
    wrong += [f"{each}: nobody submitted it" for each in found if each not in submitted]
    for each in answers:
        ids = [row["id"] for row in found.get(str(each.identity), [])]
        if each.status == 202 and ids != [each.task_id]:
            wrong.append(f"{each.identity}: answered {each.task_id}, rows {ids}")
    return wrong


@kills.must
def _(record: Record) -> Iterator[Claim]:
    rounds = [each["round"] for each in record.events("kill")]
    answers: dict[str, list[Exchange]] = {each: [] for each in rounds}
    for each in record.exchanges:
        if each.is_submit:
            answers[each.label].append(each)
    rows = {each.label: each.rows for each in record.statements if each.label in answers}

    wrong = {each: found for each in rounds if (found := round_problems(answers[each], rows[each]))}
    yield Claim(f"the ledger reconciled after each of {len(rounds)} kills", wrong, not wrong and bool(rounds))
    last = {row["id"]: row["state"] for row in record.tasks}
    changed = [row["id"] for each in rounds for row in rows[each] if last.get(row["id"]) != row["state"]]
    yield equal("no terminal state of a round changed later", changed, [])
    yield equal("every row is one of a round's", len(record.tasks), sum(len(rows[each]) for each in rounds))

    killed = [name for name, program in record.programs.items() if program.status == -9]
    victims = Counter(victim for each in record.events("kill") for victim in each["victims"])
    expected = victims["web"] + victims["dispatcher"]
    yield equal(f"that many programs ended by SIGKILL: {expected}", len(killed), expected)
    yield Claim("what was killed", dict(victims), True)
    yield equal("the last two stopped with 0", record.event("stopped")["statuses"], {"web": 0, "dispatcher": 0})

    kept = [each for each in record.exchanges if each.is_submit and each.key]
    settled = {each.identity for each in kept if each.status == 202}
    left = [each.identity for each in kept if each.status is None and each.identity not in settled]
    yield equal("every unanswered submit with a key was answered when asked again", left, [])
    silent = [each for each in record.exchanges if each.is_submit and each.status is None and not each.never_arrived]
    without = [each for each in silent if not each.key]
    there = sum(bool(record.rows_of(each.identity)) for each in without)
    seen = {"unanswered": len(silent), "without a key": len(without), "of these there": there}
    yield Claim("a submit without a key and without an answer may be there or not", seen, True)

    reasons = Counter(row["error"]["reason"] for row in record.tasks if row["state"] == "FAILED")
    allowed = {"process exited before worker completion", "dispatcher lost before worker completion"}
    yield Claim("what failed, failed because its process was killed", dict(reasons), reasons.keys() <= allowed)
    back = [each["at"] for each in record.events("back")]
    took = sorted(late - early["at"] for early, late in zip(record.events("kill"), back, strict=True))
    times = {"median": round(took[len(took) // 2], 2), "longest": round(took[-1], 2)}
    yield Claim(
        f"a submit was accepted and had succeeded within {BACK_SECONDS} s of each kill", times, took[-1] <= BACK_SECONDS
    )

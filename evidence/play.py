"""Playing the steps: those that act in the foreground one after the other, those that wait beside them."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from evidence.cluster import Cluster, binaries, new_cluster
from evidence.database import Database, new_name
from evidence.journal import Journal, as_json, utc_now
from evidence.reconcile import claims_of
from evidence.stage import Stage
from evidence.step import Step
from evidence.steps import folder_of

ALONGSIDE = 3
"""So many steps that wait do so beside each other."""


def play(steps: list[Step], into: Path, code: Path, *, kills: int, seed: int) -> None:
    """Play steps, each into its folder. One that fails is a record too, and keeps no other from being played."""

    def on(cluster: Cluster, step: Step) -> None:
        url = cluster.create(new_name())
        play_step(step, into / folder_of(step.name), url, cluster, code, kills=kills, seed=seed)

    def beside(step: Step) -> None:
        with new_cluster(into / f"postgresql-{step.name}.log", step.least_version) as its_own:
            on(its_own, step)

    with ThreadPoolExecutor(ALONGSIDE, thread_name_prefix="alongside") as pool:
        waiting = [pool.submit(beside, step) for step in steps if step.alongside]
        with new_cluster(into / "postgresql.log") as cluster:
            write_settings(cluster, into / "postgresql-settings.json")
            for step in (each for each in steps if not each.alongside and not each.last):
                on(cluster, step)
            for each in waiting:
                each.result()
            for step in (each for each in steps if each.last):
                on(cluster, step)


def play_step(
    step: Step, folder: Path, url: str, cluster: Cluster | None, code: Path, *, kills: int = 0, seed: int = 0
) -> bool:
    """Play one step on a database that is new and empty, and write down what it claims. Returns whether it passed."""
    journal = Journal(folder)
    scratch = Path(tempfile.mkdtemp(prefix="tally-step-"))
    stage = Stage(journal, Database(journal, url), cluster, code, scratch, kills=kills, seed=seed)
    if cluster:
        cluster.journal = journal
    began, began_utc = time.monotonic(), utc_now()
    try:
        # When the rows are read, no program of ours runs any more.
        faults = [
            _fault_of(lambda: _act(step, stage)),
            _fault_of(stage.tidy_up),
            _fault_of(lambda: _write_rows(stage, cluster)),
        ]
    finally:
        stage.tidy_up()
        if cluster:
            cluster.journal = None
        shutil.rmtree(scratch)
    seconds = round(time.monotonic() - began, 1)
    told = {"name": step.name, "shows": step.shows, "began_utc": began_utc, "ended_utc": utc_now(), "seconds": seconds}
    journal.whole("step.json", {**told, "fault": "\n".join(filter(None, faults)) or None})
    claims = claims_of(step, folder)
    journal.whole("claims.json", [asdict(each) for each in claims])
    passed = all(each.passed for each in claims)
    print(f"{'passed' if passed else 'FAILED'} {seconds:6.1f} s  {step.name}", flush=True)
    return passed


def _act(step: Step, stage: Stage) -> None:
    stage.migrate()
    stage.sql("select version()", label="the server")
    step.acts(stage)


def _fault_of(act: Callable[[], object]) -> str | None:
    """Return the traceback of what went wrong, if something did."""
    try:
        act()
    except Exception:  # noqa: BLE001 - whatever it is, it goes into the record
        return traceback.format_exc()
    return None


def _write_rows(stage: Stage, cluster: Cluster | None) -> None:
    """Write every row of the two tables, whole, as the step leaves them."""
    if cluster:
        cluster.bring_up()
    for table in ("task", "dispatcher"):
        statement = SQL("select to_jsonb(rows) from {} as rows order by id").format(Identifier("tally", table))
        with stage.database.session() as session, (stage.journal.folder / f"{table}.jsonl").open("w") as file:
            file.writelines(as_json(row) + "\n" for (row,) in session.connection.execute(statement))


def write_settings(cluster: Cluster, file: Path) -> None:
    """Write every setting of the server that is not PostgreSQL's own default; and that it is durable."""
    with psycopg.connect(cluster.url("postgres")) as connection:
        rows = connection.execute(
            "select name, setting, source from pg_settings"
            " where source <> 'default' or name in ('fsync', 'full_page_writes', 'synchronous_commit') order by name"
        ).fetchall()
    file.write_text("".join(as_json(dict(zip(("name", "setting", "source"), row, strict=True))) + "\n" for row in rows))


def versions(steps: list[Step]) -> dict[str, str]:
    """Return the versions of what plays these steps here."""

    def said(*command: str) -> str:
        try:
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]
        except (OSError, subprocess.CalledProcessError):
            return "not here"

    libpq = psycopg.pq.version_pretty(psycopg.pq.version())
    return {
        "PostgreSQL": said(str(binaries() / "postgres"), "--version"),
        **{
            f"PostgreSQL of {step.name}": said(str(binaries(step.least_version) / "postgres"), "--version")
            for step in steps
            if step.least_version
        },
        "Python": sys.version.replace("\n", " "),
        "driver": f"psycopg {psycopg.__version__} {psycopg.pq.__impl__}, libpq {libpq}",
        "system": platform.platform(),
        "processors": str(os.cpu_count()),
        "curl": said("curl", "--version"),
        "psql": said("psql", "--version"),
    }

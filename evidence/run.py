"""One run: a folder of its own, the archive, the steps played from it, the summary, the sums.

Two processes: the first, from the checkout, makes the archive and its environment; the second plays the steps, from
the unpacked archive, in that environment. Whatever happens to either, the folder is left with all that was seen.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import traceback
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from evidence import sums
from evidence.archive import ARCHIVE, ROOT, checkout, plain_environment, prepare
from evidence.check import verdict
from evidence.journal import Journal, as_json, utc_now
from evidence.reconcile import claims_of
from evidence.record import Record
from evidence.step import Step
from evidence.steps import folder_of
from evidence.summary import results, summary

LONGEST_SECONDS = 45 * 60
LONGEST_STEP_SECONDS = 5 * 60
STOPPING = (signal.SIGINT, signal.SIGTERM)


class NotPlayed(Exception):
    """The steps were not played to their end."""


def new_folder() -> Path:
    """Make the folder of a run; one that is there already is never used again."""
    name = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    for folder in (ROOT / "evidence" / f"{name}{suffix}" for suffix in ("", "-2", "-3", "-4")):
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"there are runs of {name} already")


def run(into: Path, steps: dict[str, Step], only: list[str], *, kills: int, seed: int) -> bool:
    """Make the evidence. Returns whether all that was played passed and the check finds nothing."""
    chosen = [name for name in steps if name == ARCHIVE.name or not only or name in only]
    if kills == 0:
        chosen = [name for name in chosen if name != "kills"]
    plan: dict[str, object] = {
        "name": into.name,
        "began_utc": utc_now(),
        "steps": chosen,
        "left_out": [name for name in steps if name not in chosen],
        "kills": kills,
        "seed": seed,
    }
    write_document(into, "plan.json", plan)
    write_document(into, "source.json", checkout())
    scratch = Path(tempfile.mkdtemp(prefix="tally-evidence-"))
    scratch.chmod(0o755)
    try:
        _archive_and_play(into, scratch, chosen, kills, seed)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001
        # A run that failed, or was interrupted, is kept, and says why.
        plan["fault"] = traceback.format_exc()
    finally:
        shutil.rmtree(scratch)
    write_document(into, "plan.json", {**plan, "ended_utc": utc_now()})
    return finish(into, steps)


def finish(into: Path, steps: dict[str, Step]) -> bool:
    """Write the summary and the sums of what is there, and check it."""
    found = results(into, steps)
    (into / "SUMMARY.md").write_text(summary(into, steps, found))
    sums.write(into / sums.OF_THE_EVIDENCE, sums.of_folder(into))
    return verdict(into, steps)


def _archive_and_play(into: Path, scratch: Path, chosen: list[str], kills: int, seed: int) -> None:
    journal = Journal(into / folder_of(ARCHIVE.name))
    began_utc, fault = utc_now(), None
    try:
        unpacked = prepare(journal, into, scratch)
    except Exception:
        fault = traceback.format_exc()
        raise
    finally:
        told = {"name": ARCHIVE.name, "shows": ARCHIVE.shows, "began_utc": began_utc, "ended_utc": utc_now()}
        journal.whole("step.json", {**told, "seconds": round(journal.now(), 1), "fault": fault})
        journal.whole("claims.json", [asdict(each) for each in claims_of(ARCHIVE, journal.folder)])
    (into / "pip-freeze.txt").write_text(Record(journal.folder).programs["freeze"].stdout)
    names = [name for name in chosen if name != ARCHIVE.name]
    command = [str(unpacked.python), "-m", "evidence", "play", str(into), "--kills", str(kills), "--seed", str(seed)]
    for name in names:
        command += ["--only", name]
    place = scratch / "empty"
    place.mkdir()
    given = {key: value for key, value in os.environ.items() if key == "TALLY_TEST_PG_BIN"}
    environment = {**plain_environment(), **given, "PYTHONPATH": str(unpacked.code)}
    status = _in_good_order(command, place, environment)
    if status != 0:
        raise NotPlayed(f"playing the steps ended with {status}")


def _in_good_order(command: list[str], folder: Path, environment: dict[str, str]) -> int:
    """Run a command and return its status. Whatever is to stop us stops it first: it ends what it started."""
    with subprocess.Popen(command, cwd=folder, env=environment) as playing:
        before = {each: signal.signal(each, lambda *_: playing.send_signal(signal.SIGINT)) for each in STOPPING}
        try:
            return playing.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            playing.send_signal(signal.SIGINT)
            return playing.wait(LONGEST_STEP_SECONDS)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def write_document(folder: Path, name: str, entry: object) -> None:
    (folder / name).write_text(json.dumps(json.loads(as_json(entry)), indent=1) + "\n")

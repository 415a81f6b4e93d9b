"""`python -m evidence run | check DIR | steps`: make evidence, check some, or list the steps."""

import argparse
import secrets
import signal
import sys
from pathlib import Path
from typing import NoReturn

from evidence.check import verdict
from evidence.run import STOPPING, new_folder, run, write_document
from evidence.steps import CONTENTS, all_steps


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="make the evidence: archive, environment, cluster, every step")
    plays = commands.add_parser("play", help="play steps into a folder; what `run` starts in the fresh environment")
    plays.add_argument("folder", type=Path)
    for each in (runs, plays):
        each.add_argument("--kills", type=int, default=200, help="how many SIGKILLs the last step sends")
        each.add_argument("--seed", type=int, default=None, help="of the moments of the kills; the time, if not given")
        each.add_argument("--only", metavar="STEP", action="append", default=[], help="play this step; may be repeated")
    checks = commands.add_parser("check", help="check a run from its files alone; needs no database and no package")
    checks.add_argument("folder", metavar="DIR", type=Path)
    commands.add_parser("steps", help="list the steps by the rows of the fault table")
    given = parser.parse_args()
    steps = all_steps()
    if unknown := [name for name in getattr(given, "only", []) if name not in steps]:
        parser.error(f"there is no step {', '.join(unknown)}")

    if given.command == "steps":
        for row, names in CONTENTS.items():
            print(
                row, *(f"    {name}: {steps[name].shows if name in steps else 'NOT_RUN'}" for name in names), sep="\n"
            )
        return 0
    if given.command == "check":
        return 0 if verdict(given.folder, steps) else 1
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    if given.command == "play":
        from evidence.play import play, versions  # noqa: PLC0415 - needs the driver, which checking does not

        for number in STOPPING:
            signal.signal(number, _interrupt)
        chosen = [steps[name] for name in given.only]
        write_document(given.folder, "versions.json", versions(chosen))
        play(chosen, given.folder, Path(__file__).parents[1], kills=given.kills, seed=seed)
        return 0
    folder = new_folder()
    print(f"evidence goes to {folder}", flush=True)
    return 0 if run(folder, steps, given.only, kills=given.kills, seed=seed) else 1


def _interrupt(number: int, frame: object) -> NoReturn:  # noqa: ARG001 - as every handler
    """Stop once: a second signal must not keep the steps from ending what they started."""
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench [SUBJECT …]` measures and prints tables; `python -m bench report DIR` writes the page of a run."""

import argparse
import signal
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import (
    backlog,
    bound,
    bulk,
    crowd,
    drain,
    idle,
    memory,
    mixed,
    peer_pickup,
    peers,
    pickup,
    processes,
    record,
    retention,
    snapshot,
    submit,
    text,
    two,
)
from bench.page import write_page
from bench.sizes import Sizes
from bench.stage import ROOT, stage
from bench.table import NOT_RUN, Table

SUBJECTS: Final = {
    each.__name__.rpartition(".")[2]: each.measure
    for each in (
        drain,
        text,
        two,
        processes,
        submit,
        bulk,
        pickup,
        crowd,
        mixed,
        backlog,
        snapshot,
        bound,
        retention,
        idle,
        memory,
        peers,
        peer_pickup,
    )
}
BY_NAME_ONLY: Final = {"peers", "peer_pickup"}
"""What installs packages is measured only where it is asked for."""


def main() -> int:
    """Measure; exit status 0 when all that was asked for was measured, 1 when something failed and the rest was."""
    if sys.argv[1:2] == ["report"]:
        return report(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog=f"subjects: {', '.join(SUBJECTS)}; without a name all but {', '.join(BY_NAME_ONLY)}",
    )
    parser.add_argument("subjects", metavar="SUBJECT", nargs="*", help="what to measure; see below")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where JSON and plots go; bench/runs/NOW if not given")
    parser.add_argument("--peers-in", metavar="DIR", type=Path, help="where peers are installed, and kept")
    Sizes.add_options(parser)
    given = parser.parse_args()
    if unknown := [name for name in given.subjects if name not in SUBJECTS]:
        parser.error(f"there is no subject {', '.join(unknown)}")
    folder = given.out or ROOT / "bench" / "runs" / f"{datetime.now(UTC):%Y-%m-%d-%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    # Or a run that is ended early would leave its server behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed = measure(given.subjects or [name for name in SUBJECTS if name not in BY_NAME_ONLY], given, folder)
    print(f"figures are in {folder}", *(f"failed: {name}" for name in failed), sep="\n")
    return int(bool(failed))


def measure(names: list[str], given: argparse.Namespace, folder: Path) -> list[str]:
    """Measure one subject after the other on one server; return those that failed, which spoil no other."""
    failed = []
    with stage(given.peers_in) as on:
        for name in names:
            begun = record.begin(name, on, Sizes.given(given))
            try:
                table = SUBJECTS[name](on, Sizes.given(given))
            except Exception as error:  # noqa: BLE001 - whatever it was, it belongs in the record
                traceback.print_exc()
                failed.append(name)
                table = Table(name, {}, [f"{NOT_RUN}: {type(error).__name__}: {error}"])
            record.write(begun, table, folder)
            print(table, flush=True)
    return failed


def report(arguments: list[str]) -> int:
    """Write the page of a run, with its figures and plots beside it."""
    parser = argparse.ArgumentParser(prog="python -m bench report", description=report.__doc__)
    parser.add_argument("run", metavar="DIR", type=Path, help="where a run left its JSON")
    parser.add_argument("--page", metavar="FILE", type=Path, default=ROOT / "docs" / "performance.md")
    given = parser.parse_args(arguments)
    print(*write_page(given.run, given.page), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The source archive, built from the checkout, unpacked in an empty folder, installed in a fresh environment.

What runs afterwards is what was unpacked: our three packages from the fresh environment, where they were installed
from there, and `evidence` from the unpacked folder. It is the run's first step, and leaves its record like every other.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evidence import sums
from evidence.journal import Journal
from evidence.programs import Program
from evidence.record import Record
from evidence.step import Claim, Step, equal

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("falcon_app", "dispatcher", "sql")

INDEX: Final = ("PIP_", "SSL_", "REQUESTS_", "http_", "https_", "no_", "HTTP_", "HTTPS_", "NO_")
"""Variables that lead to a package index. They may hold a password, so only their names are recorded."""


def _not_played(stage: object) -> None:
    raise NotImplementedError("the archive is made before there is a stage")


ARCHIVE: Final = Step("archive", "what runs is the source archive, unpacked and installed afresh", _not_played)


@dataclass(frozen=True)
class Unpacked:
    """A fresh environment's Python, and a folder that holds `evidence` of the archive and nothing else."""

    python: Path
    code: Path


class NotBuilt(Exception):
    """A command that prepares the run failed; its record says how."""


def prepare(journal: Journal, into: Path, scratch: Path) -> Unpacked:
    """Build, unpack and install. Raises `NotBuilt`."""
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", str(into), str(ROOT)]
    _run(journal, "build", scratch, *command)
    archive = archive_in(into)
    sums.write(into / sums.OF_THE_SOURCES, sums.of_archive(archive))
    unpacked = scratch / "unpacked"
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()

    environment = scratch / "environment"
    python = environment / "bin" / "python"
    _run(journal, "environment", scratch, sys.executable, "-m", "venv", str(environment))
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    _run(journal, "install", scratch, *pip, "install", "--no-input", f"{source}[embedded]")
    _run(journal, "freeze", scratch, *pip, "freeze", "--all")
    _run(journal, "where", scratch, str(python), "-c", "import sql; print(sql.__path__[0])")

    code = scratch / "code"
    code.mkdir()
    (code / "evidence").symlink_to(source / "evidence")
    installed = Path(Record(journal.folder).programs["where"].stdout.strip()).parent
    of_installed = {f"{name}/{file}": digest for name in PACKAGES for file, digest in _sources(installed / name)}
    journal.event("installed", sums=of_installed)
    return Unpacked(python, code)


def plain_environment() -> dict[str, str]:
    """Return what a command needs of the person's environment, to find programs and a package index; nothing else."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    return {key: value for key, value in os.environ.items() if key in kept or key.startswith(INDEX)}


def archive_in(folder: Path) -> Path:
    """Return the one source archive of a run."""
    (archive,) = folder.glob("*.tar.gz")
    return archive


def checkout() -> dict[str, object]:
    """Return the commit that is checked out, and what differs from it; both None outside a repository."""
    try:
        commit, changed = (
            subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "changed": None}
    return {"commit": commit, "changed": changed.splitlines()}


@ARCHIVE.must
def _claims(record: Record) -> Iterator[Claim]:
    yield equal(
        "every command ended with 0",
        {each.name: each.status for each in record.programs.values()},
        dict.fromkeys(("build", "environment", "install", "freeze", "where"), 0),
    )
    sources = sums.read(record.folder.parent / sums.OF_THE_SOURCES)
    ours = {name: digest for name, digest in sources.items() if name.partition("/")[0] in PACKAGES}
    yield equal(
        "the archive holds the three packages", sorted({name.partition("/")[0] for name in ours}), sorted(PACKAGES)
    )
    installed = record.event("installed")["sums"]
    yield equal(
        "every installed file of ours is the archive's", list(sums.differences(ours, installed, "installed")), []
    )


def _sources(package: Path) -> Iterator[tuple[str, str]]:
    for name, digest in sums.of_folder(package).items():
        if "__pycache__" not in name:
            yield name, digest


def _run(journal: Journal, name: str, folder: Path, *command: str) -> None:
    program = Program(journal, name, command, plain_environment(), folder, secret=INDEX)
    if program.wait(600) != 0:
        raise NotBuilt(f"{' '.join(command)} ended with {program.wait()}: {program.stderr[-2000:]}")

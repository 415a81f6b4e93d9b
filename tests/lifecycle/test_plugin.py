"""The pytest plugin in a project of somebody else's: a fresh folder, and what is left of its server afterwards."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dispatcher.testing.databases import Databases
from dispatcher.testing.keeper import kept
from sql.account import ServerFault
from sql.errors import TallyError
from sql.throwaway import BINARIES_VARIABLE
from tests.support.program import ROOT, Program, environment
from tests.support.server import TestServer
from tests.support.waiting import wait_until

pytest_plugins = ["pytester"]

KIND = """
from dispatcher import task

@task("double")
def double(given: dict) -> object:
    return 2 * given["number"]
"""

DOUBLING = """
from pathlib import Path
from kinds import double

def test_it(tally):
    task_id = double.submit({"number": 4})

    tally.run_pending()

    tally.assert_succeeded(task_id, result=8)
    Path("url").write_text(tally.url)
"""

WAITING = """
import time
from pathlib import Path
from kinds import double

def test_it(tally):
    double.submit({"number": 4})
    Path("url").write_text(tally.url)
    print("waits", flush=True)
    time.sleep(60)
"""

Start = Callable[..., Program]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a kind; its tests find the plugin as any project does that has the package."""
    for name in list(os.environ):
        if name.startswith(("TALLY_", "DATABASE_")) and name != BINARIES_VARIABLE:
            monkeypatch.delenv(name)
    pytester.makepyfile(kinds=KIND)
    return pytester


@pytest.fixture
def start(project: pytest.Pytester) -> Iterator[Start]:
    """Start pytest in the project, as a process that can be sent signals."""
    started: list[Program] = []

    def start(*arguments: str, env: dict[str, str] | None = None) -> Program:
        kept_on = {BINARIES_VARIABLE: os.environ.get(BINARIES_VARIABLE)}
        command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *arguments]
        started.append(Program(command, environment({**kept_on, **(env or {})}), project.path))
        return started[-1]

    yield start
    for program in started:
        if program.running:
            program.kill()


def socket_folder(url: str) -> Path:
    """Return the folder that a server of the plugin's lives in, below the one that holds all of it."""
    (place,) = parse_qs(urlsplit(url).query)["host"]
    return Path(place).parent


def commands() -> list[str]:
    """Return the command line of every process."""
    return subprocess.check_output(["ps", "-ax", "-ww", "-o", "command="], text=True).splitlines()


def left_of(folder: Path) -> list[str]:
    """Return what is left of a server in this folder: the folder, and processes that name it."""
    return [line for line in commands() if str(folder) in line] + [str(folder)] * folder.exists()


def databases_of(server: TestServer) -> object:
    return server.value("select array_agg(datname order by datname) from pg_database")


def test_a_project_gets_a_server_and_keeps_nothing_of_it(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=DOUBLING)

    project.runpytest_subprocess("-W", "error").assert_outcomes(passed=1)

    folder = socket_folder((project.path / "url").read_text())
    assert folder.name.startswith("tally-test-")
    assert left_of(folder) == []


@pytest.fixture
def lent(project: pytest.Pytester, server: TestServer, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The project, with the suite's server to use: where it does not matter whose it is, that is quicker."""
    monkeypatch.setenv("TALLY_TEST_SERVER_URL", server.url("postgres"))
    return project


def test_each_test_begins_with_a_clean_database(lent: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    lent.makepyfile(
        test_it="""
        import os
        import pytest
        from kinds import double

        seen = set()

        @pytest.mark.parametrize("time", [1, 2])
        def test_it(tally, time):
            assert tally.tasks() == []
            assert os.environ["DATABASE_URL"] == tally.url
            assert tally.url not in seen
            seen.add(tally.url)
            assert double.submit({"number": time}) == 1

        def test_the_environment_is_as_it_was():
            assert os.environ["DATABASE_URL"] == "postgresql://nobody@localhost:1/nowhere"
        """
    )
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@localhost:1/nowhere")

    lent.runpytest_subprocess("-W", "error").assert_outcomes(passed=3)


def test_a_failed_question_shows_the_row_at_the_tests_own_line(lent: pytest.Pytester) -> None:
    lent.makepyfile(
        test_it="""
        from kinds import double

        def test_it(tally):
            tally.assert_failed(double.submit({"number": 4}))
        """
    )

    said = lent.runpytest_subprocess()

    said.stdout.fnmatch_lines(
        [
            '>       tally.assert_failed(double.submit({"number": 4}))',
            "E       AssertionError: expected FAILED; task 1 is QUEUED:",
            "E           kind: double",
            "test_it.py:4: AssertionError",
        ]
    )


def test_who_asks_for_no_fixture_pays_for_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
        import sys

        def test_it(request):
            assert not {"dispatcher", "sql", "psycopg", "msgspec"} & set(sys.modules)
            assert request.fixturenames == ["request"]
            assert request.config.pluginmanager.has_plugin("pgtally")
        """
    )

    project.runpytest_subprocess("-W", "error").assert_outcomes(passed=1)


def test_importing_the_dispatcher_imports_no_pytest() -> None:
    modules = "dispatcher.__main__, dispatcher.testing.tally, dispatcher.testing.keeper"

    subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; assert 'pytest' not in sys.modules"], check=True, cwd=ROOT
    )


def test_workers_of_xdist_have_a_server_each_and_leave_none(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=DOUBLING.replace('"url"', '"url-a"'), test_b=DOUBLING.replace('"url"', '"url-b"'))

    project.runpytest_subprocess("-n", "2", "--dist", "loadfile").assert_outcomes(passed=2)

    folders = {socket_folder(file.read_text()) for file in project.path.glob("url-*")}
    assert len(folders) == 2
    assert [left_of(folder) for folder in folders] == [[], []]


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_ctrl_c_leaves_nothing(project: pytest.Pytester, start: Start, arguments: tuple[str, ...]) -> None:
    project.makepyfile(test_it=WAITING)
    tests = start(*arguments)
    url = project.path / "url"
    wait_until(lambda: url.exists() and url.read_text(), "the test waits", seen=lambda: tests.output)

    # As a terminal does: to all that pytest has started, too.
    os.killpg(tests.pid, signal.SIGINT)

    assert tests.wait() == pytest.ExitCode.INTERRUPTED
    folder = socket_folder(url.read_text())
    wait_until(lambda: not left_of(folder), "nothing is left", seen=lambda: left_of(folder))


def test_ctrl_c_while_the_server_is_made_leaves_nothing(project: pytest.Pytester, start: Start) -> None:
    project.makepyfile(test_it=DOUBLING)
    tests = start()

    def making() -> re.Match[str] | None:
        children = subprocess.run(
            ["ps", "-ax", "-ww", "-o", "ppid=,pid=,command="], check=True, capture_output=True, text=True
        ).stdout
        keeper = re.search(rf"^ *{tests.pid} +(\d+) .*dispatcher\.testing\.keeper", children, re.MULTILINE)
        return keeper and re.search(rf"^ *{keeper[1]} +\d+ .*initdb .*?(/\S*tally-test-\w+)/", children, re.MULTILINE)

    made = wait_until(making, "initdb runs", seen=lambda: tests.output)
    assert made
    folder = Path(made[1])

    tests.send(signal.SIGINT)

    assert tests.wait() == pytest.ExitCode.INTERRUPTED
    wait_until(lambda: not left_of(folder), "nothing is left", seen=lambda: left_of(folder))


def test_tests_that_are_killed_leave_nothing(project: pytest.Pytester, start: Start) -> None:
    project.makepyfile(test_it=WAITING)
    tests = start()
    tests.wait_for("waits")

    tests.kill()

    folder = socket_folder((project.path / "url").read_text())
    wait_until(lambda: not left_of(folder), "nothing is left", seen=lambda: left_of(folder))


def test_an_existing_server_is_left_as_it_was(project: pytest.Pytester, server: TestServer) -> None:
    before = databases_of(server)
    project.makepyfile(test_it=DOUBLING)
    project.makeini(f"[pytest]\ntally_server_url = {server.url('postgres')}")

    project.runpytest_subprocess("-W", "error").assert_outcomes(passed=1)

    url = (project.path / "url").read_text()
    assert re.fullmatch(re.escape(server.url("")) + r"tally_test_\w+", url)
    assert databases_of(server) == before


def test_the_environment_names_another_server_than_the_project_does(
    project: pytest.Pytester, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(test_it=DOUBLING)
    project.makeini("[pytest]\ntally_server_url = postgresql://nobody@localhost:1/nowhere")
    monkeypatch.setenv("TALLY_TEST_SERVER_URL", server.url("postgres"))

    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_tests_that_are_killed_leave_an_existing_server_as_it_was(
    project: pytest.Pytester, start: Start, server: TestServer
) -> None:
    before = databases_of(server)
    project.makepyfile(test_it=WAITING)
    tests = start(env={"TALLY_TEST_SERVER_URL": server.url("postgres")})
    tests.wait_for("waits")
    assert databases_of(server) != before

    tests.kill()

    wait_until(lambda: databases_of(server) == before, "the databases are gone", seen=lambda: databases_of(server))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://nobody@127.0.0.1:1/nowhere", "connection failed|refused"),
        ("host=127.0.0.1", "the server of the tests is given by a URL"),
    ],
)
def test_a_server_that_is_not_there_is_said_not_to_be(url: str, says: str) -> None:
    with pytest.raises(ServerFault, match=says), kept(url):
        pass


def test_a_keeper_that_was_killed_is_missed(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    keepers: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        keepers.append(start(*arguments, **options))
        return keepers[0]

    monkeypatch.setattr(subprocess, "Popen", noted)
    with pytest.raises(ServerFault, match="something of the test server may be left"):  # noqa: SIM117 - in this order
        with kept(server.url("postgres")) as databases:
            keepers[0].kill()
            keepers[0].wait()

    databases.drop_all()


def test_a_process_that_the_tests_forked_keeps_no_server(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it=DOUBLING
        + """
    import os, time
    if not (pid := os.fork()):
        # It holds whatever pytest holds.
        time.sleep(60)
        os._exit(0)
    Path("pid").write_text(str(pid))
"""
    )
    try:
        project.runpytest_subprocess().assert_outcomes(passed=1)

        assert left_of(socket_folder((project.path / "url").read_text())) == []
    finally:
        os.kill(int((project.path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("postgresql://me@host:5432/mine", "postgresql://me@host:5432/t"),
        ("postgresql://me:a%2Fb@host", "postgresql://me:a%2Fb@host/t"),
        ("postgres:///mine?host=/run", "postgres:///t?host=/run"),
        ("postgresql://me@/?host=%2Frun&port=1", "postgresql://me@/t?host=%2Frun&port=1"),
    ],
)
def test_a_url_is_that_of_another_database_of_its_server(given: str, named: str) -> None:
    assert Databases(given).url_of("t") == named


def test_the_template_is_dropped_where_it_cannot_be_migrated(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = databases_of(server)

    def fail(connection: object) -> int:
        raise TallyError("no")

    monkeypatch.setattr("dispatcher.testing.databases.migrate", fail)
    databases = Databases(server.url("postgres"))
    with pytest.raises(TallyError):
        databases.make_template()

    databases.drop_all()

    assert databases_of(server) == before


@pytest.mark.long
def test_the_built_wheel_brings_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("TALLY_", "DATABASE_", "PYTEST_"))]:
        monkeypatch.delenv(name)
    project = tmp_path / "project"
    project.mkdir()
    (project / "kinds.py").write_text(KIND)
    (project / "test_it.py").write_text(DOUBLING)

    def run(*command: str | Path, folder: Path = tmp_path) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    # By way of the source archive, so that nothing but what it holds is built, and nothing in the checkout is changed.
    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[embedded]", "pytest>=9.0")

    said = run(python, "-m", "pytest", "-W", "error", folder=project)

    assert "1 passed" in said
    assert left_of(socket_folder((project / "url").read_text())) == []

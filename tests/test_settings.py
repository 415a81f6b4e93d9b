"""sql.settings: one table, every problem named at once, before anything listens."""

from dataclasses import fields
from datetime import timedelta

import pytest

from sql.settings import BadSettings, Settings, read, variable


def problems_of(environ: dict[str, str], flags: dict[str, str | None] | None = None) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        read(environ, flags)
    return caught.value.problems


def test_nothing_given_is_the_defaults() -> None:
    assert read({}) == Settings()
    assert read({"PATH": "/bin", "TALLYHO": "1"}) == Settings()


def test_every_field_can_be_set_by_its_variable() -> None:
    environ = {
        "DATABASE_URL": "postgresql://db:5432/tally",
        "PORT": "0",
        "TALLY_BEAT_SECONDS": "0.25",
        "TALLY_MAX_BODY_BYTES": "2048",
        "TALLY_ALLOW_ANONYMOUS": "1",
        "TALLY_QUEUE": "mail",
        "TALLY_LOG_LEVEL": "DEBUG",
    }

    settings = read(environ)

    assert settings.database_url == settings.direct_url == "postgresql://db:5432/tally"
    assert (settings.port, settings.max_body_bytes, settings.allow_anonymous) == (0, 2048, True)
    assert (settings.beat, settings.queue) == (timedelta(seconds=0.25), "mail")


def test_names_are_unique_and_tell_the_unit() -> None:
    names = [variable(item.name) for item in fields(Settings)]

    assert len(set(names)) == len(names)
    assert {variable(item.name).endswith("_SECONDS") for item in fields(Settings) if item.type is timedelta} == {True}
    assert all(item.metadata["reason"] for item in fields(Settings))


def test_every_problem_is_named_at_once_and_stray_names_too() -> None:
    problems = problems_of(
        {"TALLY_BEAT": "1", "TALLY_SLOTS": "many", "PORT": "70000", "TALLY_GRACE_SECONDS": "-1", "TALLY_Q": ""}
    )

    assert problems == [
        "TALLY_BEAT: there is no such setting",
        "TALLY_Q: there is no such setting",
        "PORT: expected 0 to 65535, got 70000",
        "TALLY_SLOTS: expected a whole number, got 'many'",
        "TALLY_GRACE_SECONDS: expected a number of seconds, got '-1'",
    ]


def test_a_setting_with_an_empty_value_counts_as_not_given() -> None:
    assert read({"TALLY_SLOTS": "", "DATABASE_URL": ""}) == Settings()


def test_a_direct_url_needs_the_other_beside_it() -> None:
    (problem,) = problems_of({"DATABASE_DIRECT_URL": "postgresql://me@server/mine"})

    assert problem == "DATABASE_URL: needed beside DATABASE_DIRECT_URL"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TALLY_SLOTS", "0"),
        ("TALLY_SLOTS", "1.5"),
        ("TALLY_SLOTS", "१२"),
        ("TALLY_SLOTS", " 8"),
        ("TALLY_SLOTS", "8\n"),
        ("TALLY_SLOTS", "1" * 5000),
        ("TALLY_BEAT_SECONDS", "nan"),
        ("TALLY_BEAT_SECONDS", "inf"),
        ("TALLY_BEAT_SECONDS", "1e3"),
        ("TALLY_BEAT_SECONDS", "0"),
        ("TALLY_BEAT_SECONDS", "86401"),
        ("TALLY_CONNECT_SECONDS", "1"),
        ("TALLY_MAX_DEPTH", "201"),
        ("TALLY_ALLOW_ANONYMOUS", "yes"),
        ("TALLY_LOG_LEVEL", "loud"),
        ("TALLY_QUEUE", "a\0b"),
        ("DATABASE_URL", "nonsense"),
        ("DATABASE_URL", "postgresql://[::1/db"),
        ("DATABASE_URL", "postgresql://db:notaport/tally"),
        ("DATABASE_URL", "postgresql://db:65536/tally"),
        ("DATABASE_URL", "host=db port=0"),
        ("DATABASE_URL", "postgresql://db/tally?\udcff=1"),
        ("DATABASE_DIRECT_URL", "host=a nonsense=b"),
        ("TALLY_DRAIN_RESERVE_SECONDS", "25"),
    ],
)
def test_a_value_that_cannot_be_is_one_problem_of_its_variable(name: str, value: str) -> None:
    (problem,) = problems_of({name: value})

    assert problem.startswith(f"{name}: ")


def test_a_wrong_url_is_refused_without_quoting_its_password() -> None:
    (problem,) = problems_of({"DATABASE_URL": "postgresql://me:s3cret@[::1/db"})

    assert "s3cret" not in problem


def test_a_flag_wins_over_the_environment_and_is_named_in_its_problem() -> None:
    assert read({"TALLY_SLOTS": "4"}, {"slots": "2"}).slots == 2
    assert read({"TALLY_SLOTS": "4"}, {"slots": None}).slots == 4
    assert problems_of({}, {"slots": "two"}) == ["--slots: expected a whole number, got 'two'"]


def test_an_environment_value_that_a_flag_overrides_is_not_a_problem() -> None:
    assert read({"TALLY_SLOTS": "many"}, {"slots": "2"}).slots == 2


def test_the_direct_url_is_the_one_for_those_who_need_a_session() -> None:
    settings = read(
        {
            "DATABASE_URL": "postgresql://pooler/t",
            "DATABASE_DIRECT_URL": "postgresql://a,b,c/t",
            "TALLY_GRACE_SECONDS": "13",
        }
    )

    assert settings.direct_url == "postgresql://a,b,c/t"
    assert settings.database_addresses == 3
    assert read({}).database_addresses == 1


def test_a_grace_shorter_than_a_reconnect_may_take_is_refused() -> None:
    hosts = {"DATABASE_URL": "postgresql://a,b,c/t", "TALLY_GRACE_SECONDS": "12.9"}

    (problem,) = problems_of(hosts)

    assert problem.startswith("TALLY_GRACE_SECONDS: expected at least 13, ")


@pytest.mark.parametrize(
    ("name", "others"), [("GRACE", {"TALLY_STALL_SECONDS": "12"}), ("STALL", {"TALLY_GRACE_SECONDS": "12"})]
)
def test_what_a_judge_gives_is_refused_where_several_beats_do_not_fit_into_it(
    name: str, others: dict[str, str]
) -> None:
    given = {"TALLY_BEAT_SECONDS": "3", **others}

    (problem,) = problems_of({**given, f"TALLY_{name}_SECONDS": "11.9"})

    assert problem.startswith(f"TALLY_{name}_SECONDS: expected at least 12, four times TALLY_BEAT_SECONDS")
    assert read({**given, f"TALLY_{name}_SECONDS": "12"}).beat.total_seconds() == 3


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("7d", timedelta(days=7)),
        ("36h", timedelta(hours=36)),
        ("90m", timedelta(minutes=90)),
        ("60s", timedelta(seconds=60)),
        ("forever", None),
    ],
)
def test_how_long_ended_tasks_are_kept_has_a_unit_or_is_for_ever(text: str, period: timedelta | None) -> None:
    assert read({"TALLY_KEEP": text}).keep_period == period


@pytest.mark.parametrize("text", ["7", "7w", "-7d", "7 d", "1.5d", "59s", "0d", "36501d", "999999999d", "ever", "٣d"])
def test_a_period_that_is_none_is_refused(text: str) -> None:
    (problem,) = problems_of({"TALLY_KEEP": text})

    assert problem.startswith("TALLY_KEEP: expected ")


def test_ended_tasks_are_kept_for_longer_than_a_request_may_take() -> None:
    assert problems_of({"TALLY_KEEP": "60s", "TALLY_REQUEST_SECONDS": "60"}) == [
        "TALLY_KEEP: must be longer than TALLY_REQUEST_SECONDS"
    ]

"""The two addresses: what is accepted, and that every problem is named at once, before anything listens."""

import pytest

from falcon_app.settings import Address, web_settings
from sql.settings import BadSettings
from tests.support.program import RunProgram

URL = {"DATABASE_URL": "postgresql://127.0.0.1/tally"}


def problems(*arguments: str, **environ: str) -> list[str]:
    with pytest.raises(BadSettings) as raised:
        web_settings(arguments, environ)
    return raised.value.problems


@pytest.mark.parametrize(
    ("arguments", "environ", "listen", "admin"),
    [
        ([], {}, ("127.0.0.1", 8000), ("127.0.0.1", 9000)),
        ([], {"PORT": "5000"}, ("127.0.0.1", 5000), ("127.0.0.1", 6000)),
        ([], {"PORT": "0"}, ("127.0.0.1", 0), ("127.0.0.1", 0)),
        (["--listen", "127.0.0.2:1"], {"PORT": "5000"}, ("127.0.0.2", 1), ("127.0.0.1", 1001)),
        (["--listen", "localhost:64535"], {}, ("127.0.0.1", 64535), ("127.0.0.1", 65535)),
        (["--listen", "[::1]:80", "--admin", "[::1]:0"], {}, ("::1", 80), ("::1", 0)),
        ([], {"TALLY_LISTEN": "127.0.0.1:7000", "TALLY_ADMIN": ""}, ("127.0.0.1", 7000), ("127.0.0.1", 8000)),
        (["--admin", "localhost:1"], {"TALLY_ADMIN": "127.9.9.9:2"}, ("127.0.0.1", 8000), ("127.0.0.1", 1)),
        (["--listen", "0.0.0.0:8000"], {"TALLY_ALLOW_ANONYMOUS": "1"}, ("0.0.0.0", 8000), ("127.0.0.1", 9000)),
        (["--listen", "127.0.0.1:65535", "--admin", "127.0.0.1:0"], {}, ("127.0.0.1", 65535), ("127.0.0.1", 0)),
    ],
)
def test_addresses_come_from_flags_then_environment_then_port(
    arguments: list[str], environ: dict[str, str], listen: tuple[str, int], admin: tuple[str, int]
) -> None:
    settings = web_settings(arguments, {**URL, **environ})

    assert (settings.listen, settings.admin) == (Address(*listen), Address(*admin))


def test_what_is_no_address_is_named() -> None:
    hosts = ["", "8000", ":8000", "localhost", "localhost:", "::1:80", "[::1]", "example.org:80", "[127.0.0.1", "*:80"]
    ports = ["127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:x", "127.0.0.1: 80", "127.0.0.1:\u0661"]
    for address in hosts + ports:
        (problem,) = problems("--admin", address)

        assert problem.startswith("--admin: expected host:port")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:9000", "[::]:9000"])
def test_admin_is_always_a_loopback_address(address: str) -> None:
    assert problems("--admin", address, TALLY_ALLOW_ANONYMOUS="1") == [f"--admin: {address} is not a loopback address"]


def test_listening_beyond_loopback_must_be_allowed() -> None:
    (problem,) = problems("--listen", "0.0.0.0:0")

    assert "TALLY_ALLOW_ANONYMOUS=1" in problem


def test_a_default_admin_port_that_overflows_is_named() -> None:
    (problem,) = problems("--listen", "127.0.0.1:65000")

    assert problem.startswith("TALLY_ADMIN: ")
    assert "66000" in problem


def test_the_two_addresses_differ() -> None:
    (problem,) = problems("--listen", "127.0.0.1:80", "--admin", "127.0.0.1:80")

    assert problem == "--admin: must differ from the API's address, 127.0.0.1:80"


def test_every_problem_is_named_at_once_and_nothing_is_started(run_program: RunProgram) -> None:
    program = run_program(
        "falcon_app",
        "--admin",
        "0.0.0.0:0",
        "--listen",
        "nowhere",
        env={
            "TALLY_BEET_SECONDS": "1",
            "TALLY_MAX_DEPTH": "0",
            "PORT": "x",
            "DATABASE_URL": "postgresql://127.0.0.1:1/x",
        },
        ready=False,
    )

    assert program.wait() == 2
    lines = program.output.splitlines()
    assert [line.partition(":")[0] for line in sorted(lines)] == [
        "--admin", "--listen", "PORT", "TALLY_BEET_SECONDS", "TALLY_MAX_DEPTH",
    ]  # fmt: skip


def test_an_unknown_flag_is_bad_configuration(run_program: RunProgram) -> None:
    assert run_program("falcon_app", "--prot", "80", ready=False).wait() == 2

"""The web process's settings: the installation's, and the two addresses parsed and checked."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from sql.settings import BadSettings, Settings, read, variable

ADMIN_OFFSET: Final = 1000


class Address(NamedTuple):
    """Where a listener binds: a numeric host, and a port, 0 for any."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """What the web process runs by."""

    shared: Settings
    listen: Address
    admin: Address


def web_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> WebSettings:
    """Return the settings of these command-line arguments and this environment; flags win.

    Raises `BadSettings` with every problem at once. Unknown flags end the program with status 2.
    """
    parser = argparse.ArgumentParser(prog="python -m falcon_app", allow_abbrev=False, description="The HTTP API.")
    parser.add_argument("--listen", metavar="HOST:PORT", help="address of the API")
    parser.add_argument("--admin", metavar="HOST:PORT", help="loopback address of /healthz and /readyz")
    flags = vars(parser.parse_args(arguments))
    problems: list[str] = []
    shared = None
    try:
        shared = read(environ, flags)
    except BadSettings as error:
        problems.extend(error.problems)
    default = "" if shared is None else f"127.0.0.1:{shared.port}"
    listen = _address("listen", flags, environ, default, problems)
    if listen is not None and not _is_loopback(listen) and environ.get(variable("allow_anonymous")) != "1":
        problems.append(
            f"{_source('listen', flags)}: {listen} is not a loopback address, and nobody is asked who they are; "
            f"set {variable('allow_anonymous')}=1 to allow that"
        )
    given = flags["admin"] is not None or environ.get(variable("admin"))
    admin = _address("admin", flags, environ, "" if given else _default_admin(listen, problems), problems)
    if admin is not None and not _is_loopback(admin):
        problems.append(f"{_source('admin', flags)}: {admin} is not a loopback address")
    if listen is not None and listen == admin and listen.port != 0:
        problems.append(f"{_source('admin', flags)}: must differ from the API's address, {listen}")
    if problems or shared is None or listen is None or admin is None:
        raise BadSettings(problems)
    return WebSettings(shared=shared, listen=listen, admin=admin)


def _source(name: str, flags: Mapping[str, str | None]) -> str:
    return f"--{name}" if flags[name] is not None else variable(name)


def _address(
    name: str, flags: Mapping[str, str | None], environ: Mapping[str, str], default: str, problems: list[str]
) -> Address | None:
    """Parse the address given by flag or environment, else the default; "" stands for none."""
    flag = flags[name]
    text = flag if flag is not None else environ.get(variable(name), "") or default
    if text == "" and flag is None:
        return None
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    try:
        parsed = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        parsed = None
    if parsed is None or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535):
        problems.append(f"{_source(name, flags)}: expected host:port with a numeric host or localhost, got {text!r}")
        return None
    return Address(str(parsed), int(port))


def _default_admin(listen: Address | None, problems: list[str]) -> str:
    if listen is None:
        return ""
    port = listen.port + ADMIN_OFFSET if listen.port else 0
    if port > 65_535:
        problems.append(f"{variable('admin')}: the API's port + {ADMIN_OFFSET} is no port, {port}; give the address")
        return ""
    return f"127.0.0.1:{port}"


def _is_loopback(address: Address) -> bool:
    host: IPv4Address | IPv6Address = ip_address(address.host)
    return host.is_loopback

"""`python -m sql migrate | serve | status | queue …`: the database's own commands."""

import argparse
import logging
import os
import re
import sys
from datetime import timedelta
from typing import Final

from sql import embedded, statement
from sql.connect import Connection, connect
from sql.errors import NotDirect, TallyError, translated
from sql.log import start_log
from sql.migrate import migrate
from sql.process import interruptible, run_to_the_end
from sql.settings import BadSettings, Settings, read

log = logging.getLogger("tally.sql")

COUNTING: Final = timedelta(seconds=60)
"""Status counts every row: half a second for a million."""


def main() -> int:
    """Run one command. Exit status: 0 done, 1 a fault, 2 bad configuration."""
    arguments = _parser().parse_args()
    try:
        settings = read(os.environ)
    except BadSettings as error:
        print(*error.problems, sep="\n", file=sys.stderr)
        return 2
    start_log(settings.log_level)
    try:
        if arguments.command == "serve":
            return embedded.serve(settings)
        with interruptible(), _connected(settings) as connection:
            return _run(connection, arguments)
    except KeyboardInterrupt:
        print(f"python -m sql {arguments.command}: stopped", file=sys.stderr)
        return 1
    except TallyError as error:
        print(f"python -m sql {arguments.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, NotDirect) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sql", allow_abbrev=False, description="The database's own commands."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("migrate", help="bring the schema to the version this program knows")
    commands.add_parser("serve", help="run the embedded server; with DATABASE_URL, only wait to be stopped")
    commands.add_parser("status", help="what the tables hold")
    queue = commands.add_parser("queue", help="set a queue's capacity, pause or resume it")
    queue.add_argument("name")
    queue.add_argument("--max-open", metavar="N", type=capacity, help="most open tasks, or none for no limit")
    paused = queue.add_mutually_exclusive_group()
    paused.add_argument("--pause", action="store_true", help="claim nothing more from it")
    paused.add_argument("--resume", action="store_true", help="claim from it again")
    return parser


def capacity(text: str) -> str:
    """Return the text of a capacity, checked; argparse names this function where it is refused."""
    if text != "none" and not (re.fullmatch("[1-9][0-9]{0,9}", text) and int(text) < 2**31):
        raise ValueError(text)
    return text


def _connected(settings: Settings) -> Connection:
    return connect(
        settings.direct_url or embedded.url(),
        name="tally-sql",
        connect_timeout=settings.connect,
        statement_timeout=max(settings.statement, COUNTING),
    )


@translated()
def _run(connection: Connection, arguments: argparse.Namespace) -> int:
    if arguments.command == "migrate":
        migrate(connection)
        return 0
    if arguments.command == "queue":
        return _set_queue(connection, arguments)
    return _print_status(connection)


def _set_queue(connection: Connection, arguments: argparse.Namespace) -> int:
    queue = {"queue": arguments.name}
    if arguments.max_open is not None:
        most = None if arguments.max_open == "none" else int(arguments.max_open)
        connection.execute(statement("queries/set_max_open"), {**queue, "max_open": most})
    asks = [(arguments.pause, "pause_queue"), (arguments.resume, "resume_queue"), (True, "has_queue")]
    for asked, name in asks:
        if asked and connection.execute(statement(f"queries/{name}"), queue).fetchone() is None:
            print(f"there is no queue named {arguments.name!r}", file=sys.stderr)
            return 1
    return _print_status(connection)


def _print_status(connection: Connection) -> int:
    for name, header in (
        (
            "queue_counts",
            ("queue", "max_open", "paused", "QUEUED", "due_later", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"),
        ),
        (
            "kind_reports",
            ("kind", "queue", "slot", "time_limit", "max_attempts", "on_crash", "checked", "published"),
        ),
        ("dispatcher_reports", ("dispatcher", "host", "pid", "queue", "slots", "beat", "state", "remark", "started")),
        (
            "queue_threats",
            ("holds", "pid", "name", "user", "database", "since", "state", "transactions", "query"),
        ),
    ):
        rows = connection.execute(statement(f"queries/{name}")).fetchall()
        if name in {"kind_reports", "queue_threats"} and not rows:
            continue
        table = [header, *(tuple("-" if cell is None else str(cell) for cell in row) for row in rows)]
        widths = [max(len(row[column]) for row in table) for column in range(len(header))]
        for row in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        print()
    return 0


if __name__ == "__main__":
    run_to_the_end(main)

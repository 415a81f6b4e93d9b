"""When something was tried and met an error, by the server's own log: it tells of every try, our log of ever fewer."""

from datetime import datetime
from itertools import pairwise

from evidence.programs import Program
from evidence.record import Record
from evidence.stage import Stage


def keep(stage: Stage, program: Program, thread: str) -> None:
    """Keep the errors that the server's log tells of the threads of a dispatcher whose names begin so."""
    name = f"tally:{program.dispatcher}:{thread}"
    lines = stage.cluster.log.read_text(errors="replace").splitlines()
    said = [line for line in lines if f"] {name}" in line and " ERROR: " in line]
    stage.event("errors in the server's log", program=program.name, thread=thread, lines=said)


def errors(record: Record) -> list[str]:
    """Return the lines that were kept."""
    lines: list[str] = record.event("errors in the server's log")["lines"]
    return lines


def gaps(lines: list[str]) -> list[float]:
    """Return the seconds from each error to the next: the wait between two tries, and the second try."""
    moments = [datetime.fromisoformat(" ".join(line.split()[:2])) for line in lines]
    return [round((later - earlier).total_seconds(), 3) for earlier, later in pairwise(moments)]

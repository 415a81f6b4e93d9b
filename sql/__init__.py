"""The contract that both programs share: the database's tables and transitions, and what is stored in them.

Every statement lives in a `.sql` file of this package. Python names the file and passes parameters; nothing is
ever spliced into SQL.
"""

from functools import cache
from importlib.resources import files
from typing import LiteralString, cast


@cache
def statement(name: str) -> LiteralString:
    """Return the text of a file of this package, `statement("queries/task_by_id")`, read once.

    The one place where SQL read from a file becomes a `LiteralString`, which psycopg asks for.
    """
    text = files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return cast("LiteralString", text)  # type: ignore[redundant-cast] # mypy takes LiteralString for str

"""Arrays as PostgreSQL writes them, for parameters that hold many values.

psycopg dumps a list member by member, in Python, for every call; a text that the statement casts to the array's
type costs a tenth of that.
"""

from collections.abc import Iterable


def array(values: Iterable[str | None]) -> str:
    """Return texts as one array literal, `{"a","b",NULL}`, to be cast: `%(names)s::text[]`."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def numbers(values: Iterable[int]) -> str:
    """Return integers as one array literal, `{1,2}`."""
    return "{" + ",".join(map(str, values)) + "}"


def _quoted(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'

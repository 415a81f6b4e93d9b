"""A kind's JSON Schema as a check of inputs: what it costs is bounded, and what it says is small.

jsonschema-rs compiles and checks (docs/decisions/0020). No reference is ever fetched, a pattern may step back only so
often, and what is said repeats no value and cuts names. Every schema is of the dialect 2020-12, which msgspec writes.

Where none of several alternatives fits, the library puts together what is wrong with each, and within each again:
80 s for a mebibyte that somebody sends on purpose. So a choice is compiled as a condition, which is only asked: `anyOf`
as "if any of these, else nothing fits", and one of null and something else as "if null, else that", whose refusals then
name their own place. What is allowed is the same.
"""

import json
import logging
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ValidationError, ValidationErrorKind

from falcon_app.errors import UnfitInput
from sql.documents import storable_text

log = logging.getLogger("tally.web")

LONGEST_DETAIL: Final = 500
"""Bytes."""
LONGEST_POINTER: Final = 1000
"""Characters. What lies further down is told as the nearest place above it."""
BACKTRACKS: Final = 100_000
"""About 3 ms for a text; one that would take more is refused like one that does not match."""
_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
_NULL: Final = {"type": "null"}


class BadSchema(Exception):
    """The text is no schema, or not whole in itself; says why."""


class InputSchema:
    """A schema that was compiled. Threads may share it."""

    def __init__(self, text: str) -> None:
        """Compile a JSON Schema. Raises `BadSchema`, and nothing else."""
        try:
            self._validator = Draft202012Validator(
                json.dumps(_asking(json.loads(text))),
                formats=_FORMATS,
                validate_formats=True,
                mask="the value",
                pattern_options=FancyRegexOptions(backtrack_limit=BACKTRACKS),
                offline=True,
            )
        except ValidationError as error:
            raise BadSchema(storable_text(error.message, LONGEST_DETAIL)) from None
        except BaseException as error:
            # What is raised where the library's Rust fails is no `Exception`, and would end the thread.
            raise BadSchema(storable_text(f"{type(error).__name__}: {error}", LONGEST_DETAIL)) from error

    def check(self, value: object) -> None:
        """Raise `UnfitInput`, with the first place that does not fit, unless the schema allows this input."""
        try:
            self._validator.validate(value)
        except ValidationError as error:
            raise UnfitInput(_detail(error), pointer=_pointer(error)) from None
        except ValueError as error:
            # Deeper than the library goes, and than a request may be: somebody's own row that is submitted again.
            raise UnfitInput(f"cannot be checked: {error}") from None
        except BaseException as error:
            log.exception("kind.check_failed")
            raise UnfitInput("cannot be checked: the validator failed, see the log") from error


def _detail(error: ValidationError) -> str:
    if isinstance(error.kind, ValidationErrorKind.FalseSchema):
        return "the value is none of those that are allowed here"
    return storable_text(error.message, LONGEST_DETAIL)


def _pointer(error: ValidationError) -> str:
    """Return the place of what is wrong, from the input; of a member that is missing or too many, the member's."""
    places = error.instance_path
    match error.kind:
        case ValidationErrorKind.Required(property=name):
            places = [*places, name]
        case ValidationErrorKind.AdditionalProperties(unexpected=[name, *_]):
            places = [*places, name]
    pointer = ""
    for place in places:
        step = "/" + str(place).replace("~", "~0").replace("/", "~1")
        if len(pointer) + len(step) > LONGEST_POINTER:
            break
        pointer += step
    return pointer


def _asking(schema: Any) -> Any:
    """Return a schema that allows the same, and in which choices are conditions."""
    if isinstance(schema, list):
        return [_asking(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    asking: dict[str, Any] = {}
    conditions: list[dict[str, Any]] = []
    for keyword, given in schema.items():
        if keyword in _DATA:
            asking[keyword] = given
        elif keyword in _MAPS and isinstance(given, dict):
            asking[keyword] = {name: _asking(each) for name, each in given.items()}
        elif keyword in {"anyOf", "oneOf"}:
            conditions.append(_condition(keyword, _asking(given)))
        else:
            asking[keyword] = _asking(given)
    if conditions:
        asking["allOf"] = [*asking.get("allOf", []), *conditions]
    return asking


def _condition(keyword: str, choices: Any) -> dict[str, Any]:
    if keyword == "anyOf" and isinstance(choices, list) and len(choices) == 2 and _NULL in choices:
        return {"if": _NULL, "else": choices[1 - choices.index(_NULL)]}
    return {"if": {keyword: choices}, "else": False}


def _read_as(type_: Any) -> Callable[[str], bool]:
    """Return whether msgspec reads a text as this type: a format allows what the body's type takes, and no more."""

    def can(text: str) -> bool:
        try:
            msgspec.convert(text, type_)
        except msgspec.ValidationError:
            return False
        return True

    return can


_AWARE: Final = msgspec.Meta(tz=True)
"""Of other times than these msgspec's schemas tell no format."""
_FORMATS: Final = {
    "date": _read_as(date),
    "date-time": _read_as(Annotated[datetime, _AWARE]),
    "decimal": _read_as(Decimal),
    "duration": _read_as(timedelta),
    "time": _read_as(Annotated[time, _AWARE]),
    "uuid": _read_as(UUID),
}

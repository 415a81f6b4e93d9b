"""The inputs of a kind: what is stored, as JSON text, and what its body takes.

A kind's type is read by msgspec, and told to others as the JSON Schema that msgspec makes of it: the web process
checks by that, and what it accepts the type must take. The two differ in one thing. To JSON Schema 1.0 is an integer
as 1 is, and jsonb keeps it as 1.0, which msgspec refuses for an `int`. So whole numbers are written without their
fraction before a type reads them; a `float` takes them either way.
"""

import inspect
import re
import sys
from types import SimpleNamespace
from typing import Annotated, Any, Final, cast, get_origin, get_type_hints

import msgspec

from dispatcher.bodies import Body, function_of
from sql.documents import BrokenRule, Json, encode, read


class BadInput(BrokenRule):
    """An input that does not fit its kind: the rule, and the JSON pointer of the place ("" is the whole input)."""


class InputType:
    """A type that bodies take: its schema, and how it is read and written. Raises `TypeError` for one that can't be."""

    def __init__(self, given: Any) -> None:
        self.schema: Final[dict[str, Any]] = msgspec.json.schema(given)
        self._decoder = msgspec.json.Decoder(given)
        while get_origin(given) is Annotated:
            given = given.__origin__
        self._class = get_origin(given) or given

    @property
    def is_object(self) -> bool:
        """Is each of its values a JSON object?"""
        name = self.schema.get("$ref", "").removeprefix("#/$defs/")
        root = self.schema["$defs"][name] if name else self.schema
        return bool(root.get("type") == "object")

    def read(self, text: str) -> object:
        """Return what a body takes, of JSON text. Raises `BadInput`."""
        try:
            return self._decoder.decode(_with_whole_numbers(text))
        except msgspec.ValidationError as error:
            raise _located(str(error), text) from None
        except Exception as error:
            # The type's own code runs while it is made: its __post_init__, say.
            raise BadInput("", f"{type(error).__name__}: {error}") from error

    def write(self, given: object) -> Json:
        """Return the JSON value of an input: of this type, or the dict that it is read from. Raises `BadInput`."""
        if not isinstance(given, dict) and not (isinstance(self._class, type) and isinstance(given, self._class)):
            name = getattr(self._class, "__qualname__", str(self._class))
            raise BadInput("", f"expected {name} or dict, got {type(given).__qualname__}")
        try:
            value: Json = msgspec.to_builtins(given, str_keys=True)
        except Exception as error:
            raise BadInput("", f"{type(error).__name__}: {error}") from error
        return value


def input_type(body: Body, annotation: Any) -> InputType | None:
    """Return the type that the annotation of a body's input names, None for a plain dict.

    Raises `TypeError` for one that no JSON object is read as, `ValueError` for one whose schema the database does not
    hold (a default that is infinite, say), and whatever a name that is not there raises.
    """
    if isinstance(annotation, str):
        named = SimpleNamespace(__annotations__={"input": annotation})
        annotation = get_type_hints(named, globalns=_globals(body), include_extras=True)["input"]
    if annotation is inspect.Parameter.empty or annotation is Any or annotation is object:
        return None
    chosen = InputType(annotation)
    if not chosen.is_object:
        raise TypeError(f"an input is a JSON object, and {annotation!r} is not")
    try:
        encode(chosen.schema)
    except BrokenRule as error:
        raise ValueError(f"the schema of {annotation!r} cannot be published: {error}") from None
    return None if chosen.schema == {"type": "object"} else chosen


def written(given: object, chosen: InputType | None, *, max_depth: int, max_bytes: int) -> str:
    """Return an input as the JSON text that is stored, read once as its body will. Raises `BadInput`."""
    value = given if chosen is None else chosen.write(given)
    if not isinstance(value, dict):
        raise BadInput("", f"expected dict, got {type(value).__qualname__}")
    try:
        text = encode(value, max_depth=max_depth, max_bytes=max_bytes)
    except BrokenRule as error:
        raise BadInput(error.pointer, error.rule) from error
    if chosen is not None:
        chosen.read(text)
    return text


def _globals(body: Body) -> dict[str, Any]:
    found: dict[str, Any] | None = getattr(function_of(body), "__globals__", None)
    return vars(sys.modules[body.__module__]) if found is None else found


_FRACTION: Final = re.compile(r"[0-9][.eE]")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9]+[.eE][-+.0-9eE]*')
"""A string, which may hold what looks like a number, or a number with a fraction or an exponent."""


def _with_whole_numbers(text: str) -> str:
    return _TOKEN.sub(_whole, text) if _FRACTION.search(text) else text


def _whole(token: re.Match[str]) -> str:
    if token[0].startswith('"') or not (number := float(token[0])).is_integer():
        return token[0]
    return str(int(number))


_PLACE: Final = re.compile(r"(?P<rule>.*?)(?: - at (?:`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_MEMBER: Final = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`", re.DOTALL)


def _located(message: str, text: str) -> BadInput:
    """Return what msgspec says is wrong, its path ("$.a[0].b") as a pointer; to a member that is missing or too many.

    The path is walked along the value: names in it are not quoted. It tells no key of a dict; the pointer ends there.
    """
    found = cast("re.Match[str]", _PLACE.fullmatch(message))
    pointer, path, value = "", found["path"] or "", read(text)
    while path:
        names: dict[str, Any] = {}
        if isinstance(value, dict):
            names = {f".{name}": name for name in value}
        elif isinstance(value, list):
            names = {f"[{index}]": index for index in range(len(value))}
        steps = [step for step in names if path.startswith(step) and path[len(step) : len(step) + 1] in {"", ".", "["}]
        if not steps:
            break
        step = max(steps, key=len)
        name = names[step]
        pointer += _step(name)
        path, value = path.removeprefix(step), value[name]  # type: ignore[index] # as the name was found
    member = _MEMBER.fullmatch(found["rule"])
    if member and not path:
        pointer += _step(member[1])
    return BadInput(pointer, found["rule"])


def _step(name: object) -> str:
    return f"/{str(name).replace('~', '~0').replace('/', '~1')}"

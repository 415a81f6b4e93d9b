"""The rule book: which JSON values may be stored, whether a client sent them or a body returned them.

UTF-8 JSON; no NUL and no lone surrogate in any string or key (jsonb holds neither); no NaN and no Infinity; no
duplicate key; integers within 64 bits; numbers within a double, and none that a double turns into zero; depth
and size within limits. A value that breaks a rule is refused with the place, as a JSON pointer (RFC 6901).

Parsing never fails half-way for a rule: what json's hooks find is left in the tree as a `_Broken`, and the one
walk that checks everything else comes upon it and knows the place.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 1024 * 1024
_LOWEST, _HIGHEST = -(2**63), 2**64 // 2 - 1


class BrokenRule(ValueError):
    """A value that can't be stored: the rule, and the JSON pointer of the place ("" is the whole value)."""

    def __init__(self, pointer: str, rule: str) -> None:
        super().__init__(f"{rule} (at {pointer or 'the top'})")
        self.pointer = pointer
        self.rule = rule


@dataclass(frozen=True, slots=True)
class _Broken:
    rule: str
    key: str | None = None


def parse(body: bytes, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES) -> Json:
    """Read one JSON document from outside, whose size was limited as it came in. Raises `BrokenRule`."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BrokenRule("", f"not UTF-8: byte {error.start} cannot be decoded") from None
    if text.startswith("\ufeff"):
        raise BrokenRule("", "a byte order mark is not JSON")
    try:
        value: Json = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BrokenRule("", f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise BrokenRule("", f"nested more than {max_depth} deep") from None
    check(value, max_depth=max_depth, max_bytes=max_bytes)
    return value


def read(text: str) -> Json:
    """Read a document that the database gave back. Raises `BrokenRule` for one that no rule of ours let in.

    jsonb writes every number out in digits, so a double that was sent as 1e20 comes back looking like an integer
    outside 64 bits; it is read as the double it was.
    """
    try:
        value: Json = _STORED.decode(text)
    except RecursionError:
        raise BrokenRule("", "nested too deep to be read") from None
    return value


def encode(value: object, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES) -> str:
    """Return a value as JSON text that jsonb takes. Raises `BrokenRule`, and nothing else."""
    try:
        check(value, max_depth=max_depth, max_bytes=max_bytes)
        text = "null" if value is None else _ENCODER.encode(value)
        size = len(text) if text.isascii() else len(text.encode("utf-8"))
    except BrokenRule:
        raise
    except Exception as error:
        # The value is a body's own: its methods may raise anything, and a thread may still be changing it.
        raise BrokenRule("", f"reading it raised {type(error).__name__}") from error
    if size > max_bytes:
        raise BrokenRule("", f"more than {max_bytes} bytes of JSON")
    return text


def check(value: object, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES) -> None:
    """Walk a value, parsed or made by a body, and raise `BrokenRule` at the first place that breaks a rule."""
    _Walk(max_depth, max_bytes).visit(value, 0)


class _Walk:
    """One walk over a value. The place of a fault is put together only when there is one, on the way back up.

    Each value takes at least a byte, a text at least one for each character, and a number its digits, all of which
    jsonb writes out. What exceeds the limit even so is not walked to its end: a small value that holds itself many
    times over would take for ever, and a mebibyte of `1e308` would come back as fifty.
    """

    __slots__ = ("bytes_left", "max_bytes", "max_depth")

    def __init__(self, max_depth: int, max_bytes: int) -> None:
        self.max_depth = max_depth
        self.max_bytes = max_bytes
        self.bytes_left = max_bytes

    def visit(self, item: object, depth: int) -> None:
        self.bytes_left -= 1
        if self.bytes_left < 0:
            raise self._too_large()
        # In the order in which they are frequent: this is asked of every value that comes in or goes out.
        if isinstance(item, str):
            self._text(item)
        elif item is None or item is True or item is False:
            return
        elif isinstance(item, int):
            if not _LOWEST <= item <= _HIGHEST:
                raise BrokenRule("", "an integer outside 64 bits")
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise BrokenRule("", "a number that is not finite")
            self.bytes_left -= abs(int(math.log10(abs(item)))) if item else 0
            if self.bytes_left < 0:
                raise self._too_large()
        elif isinstance(item, (dict, list, tuple)):
            if depth >= self.max_depth:
                raise BrokenRule("", f"nested more than {self.max_depth} deep")
            self._children(item, depth + 1)
        elif isinstance(item, _Broken):
            raise BrokenRule("" if item.key is None else _pointer(item.key), item.rule)
        else:
            raise BrokenRule("", f"{type(item).__name__} is not a JSON value")

    def _children(self, item: dict[Any, Any] | list[Any] | tuple[Any, ...], depth: int) -> None:
        place: object = None
        children: Iterable[tuple[object, object]]
        if isinstance(item, dict):
            for name in item:
                if not isinstance(name, str):
                    raise BrokenRule("", f"a key of type {type(name).__name__}, only strings are JSON keys")
                self._text(name)
            children = item.items()
        else:
            children = enumerate(item)
        try:
            for place, child in children:  # noqa: B007 - named in the handler
                self.visit(child, depth)
        except BrokenRule as error:
            raise BrokenRule(_pointer(place) + error.pointer, error.rule) from None

    def _text(self, text: str) -> None:
        self.bytes_left -= len(text)
        if self.bytes_left < 0:
            raise self._too_large()
        if "\0" in text:
            raise BrokenRule("", "the character U+0000")
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise BrokenRule("", "a lone surrogate") from None

    def _too_large(self) -> BrokenRule:
        return BrokenRule("", f"more than {self.max_bytes} bytes of JSON")


def storable_text(text: str, max_bytes: int) -> str:
    """Return the text as jsonb takes it: NUL and lone surrogates replaced, cut to the limit at a character."""
    encoded = text.replace("\0", "\ufffd").encode("utf-8", "replace")
    if len(encoded) <= max_bytes:
        return encoded.decode("utf-8")
    return encoded[: max_bytes - 3].decode("utf-8", "ignore") + "…"


def _pointer(place: object) -> str:
    return f"/{str(place).replace('~', '~0').replace('/', '~1')}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Broken:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return _Broken("a duplicate key", storable_text(key, 255))
        seen.add(key)
    raise AssertionError("a shorter dict has a duplicate")


def _integer(digits: str) -> int | _Broken:
    # Twenty characters hold every 64-bit integer; longer ones are never converted, which takes quadratic time.
    return int(digits) if len(digits) <= 20 else _Broken("an integer outside 64 bits")


def _number(digits: str) -> float | _Broken:
    number = float(digits)
    if math.isinf(number):
        return _Broken("a number too large for a double")
    if number == 0 and any(digit in "123456789" for digit in digits.lower().partition("e")[0]):
        return _Broken("a number too small for a double")
    # jsonb knows no negative zero; adding zero makes it plain before it is answered.
    return number + 0.0


def _stored_integer(digits: str) -> int | float:
    if len(digits) <= 20 and _LOWEST <= (number := int(digits)) <= _HIGHEST:
        return number
    if math.isinf(double := float(digits)):
        raise BrokenRule("", "a number too large for a double")
    return double


def _constant(name: str) -> _Broken:
    return _Broken(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_number,
    parse_constant=_constant,
)
_STORED: Final = json.JSONDecoder(parse_int=_stored_integer)
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False,
    # A walk has been through it, within the limit of depth.
    check_circular=False,
    allow_nan=False,
    separators=(",", ":"),
)

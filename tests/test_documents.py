"""The rule book: every rule with the place that breaks it, and what is accepted is what jsonb holds."""

import json
import math
import time
from collections import Counter, OrderedDict, UserDict
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from sql.documents import BrokenRule, Json, encode, parse, read, storable_text
from tests.support.database import Database

MEBIBYTE = 1024 * 1024


def broken(body: bytes | str, **limits: int) -> tuple[str, str]:
    with pytest.raises(BrokenRule) as caught:
        parse(body.encode() if isinstance(body, str) else body, **limits)
    return caught.value.pointer, caught.value.rule


def unfit(value: object, **limits: int) -> tuple[str, str]:
    with pytest.raises(BrokenRule) as caught:
        encode(value, **limits)
    return caught.value.pointer, caught.value.rule


@pytest.mark.parametrize(
    ("body", "pointer", "rule"),
    [
        (r'{"a":"x\u0000y"}', "/a", "the character U+0000"),
        (r'{"a":{"k\u0000":1}}', "/a", "the character U+0000"),
        (r'{"kind":"\u0000"}', "/kind", "the character U+0000"),
        ('{"a":"\x00"}', "", "not JSON: Invalid control character at at line 1 column 7"),
        (r'{"a":"\ud800"}', "/a", "a lone surrogate"),
        (r'{"\udfff":1}', "", "a lone surrogate"),
        (r'["\ude00\ud83d"]', "/0", "a lone surrogate"),
        (r'[[],[1,{"~/":"\ud800"}]]', "/1/1/~0~1", "a lone surrogate"),
        ('{"a":NaN}', "/a", "NaN is not JSON"),
        ("[0,Infinity]", "/1", "Infinity is not JSON"),
        ("-Infinity", "", "-Infinity is not JSON"),
        ('{"a":1E400}', "/a", "a number too large for a double"),
        ('{"a":-1e400}', "/a", "a number too large for a double"),
        ("1e-400", "", "a number too small for a double"),
        ("-0.000001E-999999999", "", "a number too small for a double"),
        ("9223372036854775808", "", "an integer outside 64 bits"),
        ("-9223372036854775809", "", "an integer outside 64 bits"),
        ("[123456789012345678901234567890]", "/0", "an integer outside 64 bits"),
        ("1" * 4300, "", "an integer outside 64 bits"),
        ("1" * 4301, "", "an integer outside 64 bits"),
        ("-" + "1" * 100_000, "", "an integer outside 64 bits"),
        ('{"kind":"a","kind":"b"}', "/kind", "a duplicate key"),
        (r'{"kind":"a","k\u0069nd":"b"}', "/kind", "a duplicate key"),
        ('{"a":[{"b":1,"c":2,"b":3}]}', "/a/0/b", "a duplicate key"),
        (r'{"\ud800":1,"\ud800":2}', "/?", "a duplicate key"),
        ("", "", "not JSON: Expecting value at line 1 column 1"),
        ("{} {}", "", "not JSON: Extra data at line 1 column 4"),
        ("\ufeff{}", "", "a byte order mark is not JSON"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_broken_rule_is_named_with_its_place(body: str, pointer: str, rule: str) -> None:
    assert broken(body) == (pointer, rule)


@pytest.mark.parametrize(
    ("body", "byte"),
    [(b"\xc3\x28", 0), (b'{"a":"\xed\xa0\x80"}', 6), (b'"\xe2\x82', 1), (b'"caf\xe9"', 4), ("{}".encode("utf-16"), 0)],
)
def test_what_is_not_utf_8_is_refused_by_a_reason_that_is(body: bytes, byte: int) -> None:
    assert broken(body) == ("", f"not UTF-8: byte {byte} cannot be decoded")


@pytest.mark.parametrize(
    "body", ["[1,]", "{'a':1}", '{"a"}', "nul", "01", "1.", ".5", "+1", "[", '"\\x"', "\f1", "0x1"]
)
def test_what_is_almost_json_is_refused(body: str) -> None:
    pointer, rule = broken(body)

    assert pointer == ""
    assert rule.startswith("not JSON: ")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (r'"\\u0000"', "\\u0000"),
        (r'"\ud83d\ude00"', "😀"),
        ("-0", 0),
        ("0.1e1", 1.0),
        ("0e999999", 0.0),
        ("-0.0E-400", 0.0),
        ("5e-324", 5e-324),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        (' \t\r\n{"a" : [ ] } ', {"a": []}),
        ('{"":{"":null}}', {"": {"": None}}),
    ],
)
def test_what_breaks_no_rule_is_read_as_it_is(body: str, value: Json) -> None:
    parsed = parse(body.encode())

    assert parsed == value
    assert type(parsed) is type(value)
    assert not (isinstance(parsed, float) and math.copysign(1, parsed) < 0)


@pytest.mark.parametrize("levels", [65, 100, 1_000, 2_000, 20_000, 200_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused_by_our_own_limit(levels: int, opening: str, closing: str) -> None:
    inside = "1" if closing == "}" else ""

    pointer, rule = broken(opening * levels + inside + closing * levels)

    assert rule == "nested more than 64 deep"
    assert pointer in ("", "/0" * 64, "/a" * 64)


def test_nesting_up_to_the_limit_is_accepted() -> None:
    for limit in (1, 64, 200):
        value = parse(b"[" * limit + b"]" * limit, max_depth=limit)
        assert encode(value, max_depth=limit) == "[" * limit + "]" * limit
        assert broken("[" * (limit + 1) + "]" * (limit + 1), max_depth=limit)[1] == f"nested more than {limit} deep"


@pytest.mark.parametrize(
    "body",
    [
        b'{"' + b"k" * (MEBIBYTE // 2) + b'":[' + b"0," * (MEBIBYTE // 4) + b"0]}",
        b"[" + b"[]," * (MEBIBYTE // 3) + b"0]",
        b'{"a":' * 60 + b"[" + b"{}," * (MEBIBYTE // 3) + b"0]" + b"}" * 60,
        b"0." + b"0" * MEBIBYTE + b"1",
        b"1" * MEBIBYTE,
        b'"' + b"\\u0061" * (MEBIBYTE // 6) + b'"',
        b"[" + b'{"a":0,"a":0},' * (MEBIBYTE // 14) + b"0]",
    ],
    ids=["long key", "empty arrays", "deep and wide", "small number", "long integer", "escapes", "duplicates"],
)
def test_the_worst_mebibyte_is_read_or_refused_in_moderate_time(body: bytes) -> None:
    began = time.process_time()

    try:
        parse(body)
    except BrokenRule as error:
        assert len(str(error)) < 200

    # Tens of times what it takes; quadratic time or memory would be far beyond it.
    assert time.process_time() - began < 10


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: int
    y: int


class Quiet(str):
    """A text that says something else of itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "lies"


class Shifting(dict[str, int]):
    """A dictionary that tells its members otherwise each time, or raises."""

    def __init__(self, answers: list[object]) -> None:
        super().__init__(a=1)
        self.answers = answers

    def items(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (Level.HIGH, "3"),
        ({Word.YES: Word.YES}, '{"yes":"yes"}'),
        (Quiet("truth"), '"truth"'),
        (Point(1, 2), "[1,2]"),
        ((), "[]"),
        (OrderedDict(a=1), '{"a":1}'),
        (Counter("aa"), '{"a":2}'),
        ({"é": "\u2028"}, '{"é":"\u2028"}'),
        (1e300, "1e+300"),
    ],
)
def test_what_a_body_may_return(value: object, text: str) -> None:
    assert encode(value) == text


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "pointer", "rule"),
    [
        (b"bytes", "", "bytes is not a JSON value"),
        ({"a": {1, 2}}, "/a", "set is not a JSON value"),
        ([datetime.now(UTC)], "/0", "datetime is not a JSON value"),
        ({"a": [Decimal(1)]}, "/a/0", "Decimal is not a JSON value"),
        (UserDict(a=1), "", "UserDict is not a JSON value"),
        (object(), "", "object is not a JSON value"),
        (range(3), "", "range is not a JSON value"),
        (float("nan"), "", "a number that is not finite"),
        ({"a": (0, -math.inf)}, "/a/1", "a number that is not finite"),
        (10**5000, "", "an integer outside 64 bits"),
        ({"a": 2**63}, "/a", "an integer outside 64 bits"),
        ({"a": {1: 2}}, "/a", "a key of type int, only strings are JSON keys"),
        ({None: 2}, "", "a key of type NoneType, only strings are JSON keys"),
        ({"a/b": "\0"}, "/a~1b", "the character U+0000"),
        (["\ud800"], "/0", "a lone surrogate"),
        ({"\ud800": 1}, "", "a lone surrogate"),
        (CYCLE, "/0" * 64, "nested more than 64 deep"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_body_may_not_return(value: object, pointer: str, rule: str) -> None:
    assert unfit(value) == (pointer, rule)


@pytest.mark.parametrize(
    ("answers", "rule"),
    [
        ([ValueError("no")], "reading it raised ValueError"),
        ([[("a", 1)], MemoryError()], "reading it raised MemoryError"),
        ([[("a", 1)], [("a", object())]], "reading it raised TypeError"),
        ([[("a", 1)], [("a", "\ud800")]], "reading it raised UnicodeEncodeError"),
        ([[("a", 1)], [("a", float("nan"))]], "reading it raised ValueError"),
        ([7], "reading it raised TypeError"),
    ],
)
def test_a_value_whose_own_methods_misbehave_is_a_broken_rule_too(answers: list[object], rule: str) -> None:
    assert unfit(Shifting(answers)) == ("", rule)


def test_the_size_is_counted_in_bytes_of_json() -> None:
    assert encode("é" * 10, max_bytes=22) == '"' + "é" * 10 + '"'
    assert unfit("é" * 10, max_bytes=21) == ("", "more than 21 bytes of JSON")
    assert unfit(["\\"] * 1000, max_bytes=3000) == ("", "more than 3000 bytes of JSON")


@pytest.mark.parametrize("number", ["1e308", "-1e308", "5e-324"])
def test_a_number_counts_as_it_is_written_out(number: str) -> None:
    listed = ",".join([number] * 100_000)

    pointer, rule = broken(f"[{listed}]")

    assert (rule, int(pointer[1:]) < 4000) == (f"more than {MEBIBYTE} bytes of JSON", True)
    assert unfit([float(number)] * 100_000)[1] == rule
    assert parse(f"[{listed[:6000]}1]".encode(), max_bytes=320 * 1001)


def test_a_small_value_that_holds_itself_many_times_is_not_walked_to_its_end() -> None:
    value: object = "x"
    for _ in range(60):
        value = [value, value]

    assert unfit(value)[1] == f"more than {MEBIBYTE} bytes of JSON"
    assert unfit(["x" * MEBIBYTE] * 1000)[1] == f"more than {MEBIBYTE} bytes of JSON"


@pytest.mark.parametrize(
    ("text", "kept"),
    [("plain", "plain"), ("a\0b", "a\ufffdb"), ("a\ud800b", "a?b"), ("é" * 10, "é" * 10), ("é" * 11, "é" * 8 + "…")],
)
def test_an_error_text_is_made_storable(text: str, kept: str) -> None:
    assert storable_text(text, 20) == kept
    assert len(storable_text(text, 20).encode()) <= 20


@pytest.mark.parametrize("sent", ["1e20", "1e300", "-1.7976931348623157e308", "1e23", "12345678901234567e4", "1E-300"])
def test_a_double_that_jsonb_writes_in_digits_comes_back_as_the_double_it_was(database: Database, sent: str) -> None:
    stored = database.value("select %s::jsonb::text", (encode(parse(sent.encode())),))

    assert read(stored) == parse(sent.encode())
    assert read(encode(read(stored))) == read(stored)


@pytest.mark.parametrize(
    ("stored", "rule"),
    [
        ("1" + "0" * 400, "a number too large for a double"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deep to be read"),
    ],
)
def test_what_no_rule_of_ours_let_in_is_refused_when_it_is_read(stored: str, rule: str) -> None:
    with pytest.raises(BrokenRule, match=rule):
        read(stored)


def test_integers_that_fit_are_read_as_integers() -> None:
    assert read("[9223372036854775807, 9223372036854775808, 1.0]") == [2**63 - 1, float(2**63), 1.0]
    assert isinstance(read("9223372036854775807"), int)


VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**63 - 1)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=12,
)


def same(given_back: object, sent: object) -> bool:
    """Equal, a number by the double it is: jsonb writes 1e17 in digits."""
    match sent:
        case dict():
            return (
                isinstance(given_back, dict)
                and sent.keys() == given_back.keys()
                and all(same(given_back[key], sent[key]) for key in sent)
            )
        case list():
            return isinstance(given_back, list) and len(given_back) == len(sent) and all(map(same, given_back, sent))
        case float():
            return isinstance(given_back, int | float) and float(given_back) == sent
        case _:
            return given_back == sent and type(given_back) is type(sent)


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=VALUES)
def test_jsonb_takes_and_gives_back_equal_what_parse_accepts(database: Database, value: object) -> None:
    sent = json.dumps(value)
    try:
        parsed = parse(sent.encode())
    except BrokenRule:
        assert any(text in sent for text in ("\\u0000", "\\ud", "\\uD"))
        return

    stored = database.value("select %s::jsonb::text", (encode(parsed),))

    assert same(parsed, value)
    assert same(read(stored), value)


JSON_LIKE = some.text(alphabet='{}[]":,\\u0dD8eE+-.123 \ntrufalsn\x00é\ud800', max_size=30)


@settings(
    max_examples=500,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=JSON_LIKE)
def test_any_bytes_are_read_or_refused(database: Database, text: str) -> None:
    try:
        value = parse(text.encode("utf-8", "surrogatepass"))
    except BrokenRule as error:
        str(error).encode("utf-8")
        error.pointer.encode("utf-8")
    else:
        assert database.value("select %s::jsonb is not null", (encode(value),))

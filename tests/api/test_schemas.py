"""A kind's schema as a check: what it allows, the place it names, and what it costs whoever sends the worst."""

import json
import threading
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from time import thread_time
from typing import Annotated, Any, Literal
from unittest.mock import Mock
from uuid import UUID

import msgspec
import pytest
from jsonschema_rs import Draft202012Validator

from falcon_app.errors import UnfitInput
from falcon_app.schemas import LONGEST_DETAIL, LONGEST_POINTER, BadSchema, InputSchema


class Leaf(msgspec.Struct, tag=True):
    value: int


class Pair(msgspec.Struct, tag=True):
    left: "Leaf | Pair"
    right: "Leaf | Pair | None" = None
    more: "list[Leaf | Pair | None]" = []


class Report(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    rows: list[int] = []
    tree: Pair | None = None
    level: Literal["low", "high"] | None = None


def schema(given: object) -> InputSchema:
    return InputSchema(json.dumps(given))


AWARE = msgspec.Meta(tz=True)
LEAF = {"type": "Leaf", "value": 1}
REPORT = schema(msgspec.json.schema(Report))


def refused(checked: InputSchema, value: object) -> tuple[str, str]:
    """Return the place and the words of a refusal."""
    with pytest.raises(UnfitInput) as raised:
        checked.check(value)
    return raised.value.pointer, str(raised.value)


def nested(levels: int, inner: dict[str, Any]) -> dict[str, Any]:
    value = inner
    for _ in range(levels):
        value = {"type": "Pair", "left": value}
    return value


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"name": 7}, "/name"),
        ({}, "/name"),
        ({"name": "x", "other": 1}, "/other"),
        ({"name": "x", "a/b~c": 1}, "/a~1b~0c"),
        ({"name": "x", "rows": [1, 2, "3"]}, "/rows/2"),
        ({"name": "x", "rows": None}, "/rows"),
        ({"name": "x", "level": "middle"}, "/level"),
        ({"name": "x", "tree": {"type": "Pair", "left": 3}}, "/tree/left"),
        ({"name": "x", "tree": {"type": "Pair", "left": LEAF, "right": {"type": "Leaf"}}}, "/tree/right"),
        ({"name": "x", "tree": {"type": "Pair", "left": LEAF, "more": [LEAF, None, 7]}}, "/tree/more/2"),
    ],
)
def test_the_place_that_does_not_fit_is_named(value: object, pointer: str) -> None:
    place, words = refused(REPORT, value)

    assert place == pointer
    assert words


def test_what_the_type_takes_is_allowed() -> None:
    for value in (
        {"name": "x"},
        {"name": "x", "rows": [1], "tree": None, "level": None},
        {"name": "", "level": "low", "tree": nested(60, {"type": "Leaf", "value": 1})},
    ):
        msgspec.json.decode(json.dumps(value), type=Report)

        REPORT.check(value)


FORMATS: list[tuple[Any, list[str], list[str]]] = [
    (
        Annotated[datetime, AWARE],
        ["2026-01-31T12:00:00Z", "2026-01-31 12:00:00+01:00"],
        ["2026-01-31T12:00:00", "soon"],
    ),
    (Annotated[time, AWARE], ["12:00:00.5Z"], ["12:00:00", "25:00:00Z"]),
    (date, ["2026-01-31"], ["2026-02-30", "31.1.2026"]),
    (timedelta, ["P1D", "PT5S"], ["5 seconds"]),
    (UUID, ["00000000-0000-0000-0000-000000000000", "00000000000000000000000000000000"], ["0000"]),
    (Decimal, ["1.50"], ["one"]),
]


@pytest.mark.parametrize(("annotation", "allowed", "not_allowed"), FORMATS, ids=str)
def test_a_format_allows_what_the_bodys_type_takes(annotation: Any, allowed: list[str], not_allowed: list[str]) -> None:
    holder = msgspec.defstruct("Holder", [("value", annotation)])
    checked = schema(msgspec.json.schema(holder))

    for text in allowed:
        msgspec.convert({"value": text}, holder)
        checked.check({"value": text})
    for text in not_allowed:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"value": text}, holder)
        assert refused(checked, {"value": text})[0] == "/value"


CHOICES: list[dict[str, Any]] = [
    {"anyOf": [{"type": "integer"}, {"minimum": 3}]},
    {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    {"anyOf": [{"type": "null"}, {"type": "null"}]},
    {"anyOf": [{"type": "null"}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 3}]},
    {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    {"oneOf": [{"type": "integer"}, {"type": "number"}], "anyOf": [{"maximum": 2}, {"minimum": 4}]},
    {"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}], "oneOf": [{"minimum": 1}, {"maximum": 3}]},
    {"not": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    {"enum": [{"anyOf": [{"type": "null"}]}, 1]},
    {"const": {"oneOf": []}},
    {
        "properties": {"anyOf": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "enum": {"type": "string"}},
        "anyOf": [{"properties": {"a": True}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}}],
        "unevaluatedProperties": False,
    },
]
VALUES: list[object] = [
    *[None, True, 0, 1, 2, 3, 4, 1.5, 3.5, "", "x", [], {}],
    {"oneOf": []},
    {"anyOf": [{"type": "null"}]},
    *[{name: value} for name in ("a", "b", "anyOf", "enum", "z") for value in (1, None, "x")],
    {"a": 1, "b": 1, "anyOf": None},
]


@pytest.mark.parametrize("given", CHOICES, ids=str)
def test_a_choice_allows_the_same_as_the_library_says_of_it(given: dict[str, Any]) -> None:
    checked, library = schema(given), Draft202012Validator(given)

    for value in VALUES:
        if library.is_valid(value):
            checked.check(value)
        else:
            refused(checked, value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"x"',
        '{"type": "nope"}',
        '{"properties": 3}',
        '{"anyOf": 3}',
        '{"anyOf": []}',
        '{"pattern": "("}',
        '{"pattern": "((a{1000}){1000}){1000}"}',
        '{"$ref": "#/$defs/nowhere"}',
        '{"$ref": "http://127.0.0.1:1/schema"}',
        '{"$ref": "file:///etc/passwd"}',
        '{"minimum": 1e999}',
        '{"items": ' * 5000 + "{}" + "}" * 5000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_schema_is_said_in_few_words(text: str) -> None:
    with pytest.raises(BadSchema) as raised:
        InputSchema(text)

    assert 0 < len(str(raised.value).encode()) <= LONGEST_DETAIL


def test_a_schema_that_refers_to_itself_without_end_still_answers() -> None:
    for given in (
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    ):
        schema(given).check({"a": 1})


MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"additionalProperties": False, "properties": {}}, {"k" * MEBIBYTE: 1}),
        ({"additionalProperties": False, "properties": {}}, {f"k{n}": 1 for n in range(100_000)}),
        ({"additionalProperties": {"type": "integer"}}, {"~/é" * (MEBIBYTE // 4): "x"}),
        ({"additionalProperties": {"additionalProperties": {"type": "null"}}}, {"a": {"k" * MEBIBYTE: 1}}),
        ({"propertyNames": {"maxLength": 3}}, {"\N{OLD ITALIC LETTER A}" * (MEBIBYTE // 4): 1}),
        ({"properties": {"a": {"enum": ["x" * 9999]}}}, {"a": "y" * MEBIBYTE}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": "y" * MEBIBYTE}),
        ({"properties": {"a": {"pattern": "x" * 9999}}}, {"a": "y" * MEBIBYTE}),
        ({"properties": {"a": {"not": {"type": "string"}}}}, {"a": "y" * MEBIBYTE}),
    ],
    ids=lambda given: str(given)[:60],
)
def test_a_refusal_is_small_whatever_was_sent(given: dict[str, Any], value: dict[str, Any]) -> None:
    pointer, words = refused(schema(given), value)

    assert len(pointer) <= LONGEST_POINTER
    assert len(words.encode("utf-8")) <= LONGEST_DETAIL
    assert "y" * 100 not in words


def tree(levels: int) -> dict[str, Any]:
    if not levels:
        return {"type": "Leaf", "value": "x"}
    return {"type": "Pair", "left": tree(levels - 1), "right": tree(levels - 1)}


WORST: dict[str, Callable[[], object]] = {
    "wrong at the bottom": lambda: {"name": "x", "tree": nested(62, {"type": "Leaf", "value": "x"})},
    "wrong everywhere, deep": lambda: {"name": "x", "tree": deep_and_wide()},
    "a full tree": lambda: {"name": "x", "tree": tree(14)},
    "many that are none of several": lambda: {
        "name": "x",
        "tree": {"type": "Pair", "left": {"type": "Leaf", "value": 1}, "more": [[]] * 300_000},
    },
}


def deep_and_wide() -> dict[str, Any]:
    value: dict[str, Any] = {"type": "Leaf", "value": "x"}
    for _ in range(31):
        value = {"type": "Pair", "left": {"type": "Leaf", "value": 1}, "more": [value, *["s"] * 4000]}
    return value


@pytest.mark.parametrize("worst", WORST)
def test_no_input_takes_more_than_a_moment(worst: str) -> None:
    value = WORST[worst]()
    before = thread_time()

    pointer, _ = refused(REPORT, value)

    assert thread_time() - before < 0.5
    assert pointer.startswith("/tree")


@pytest.mark.parametrize("pattern", [r"^(a|aa)*\1$", r"(a*)*b(?!x)", r"^(a+)+$"])
def test_no_pattern_takes_more_than_a_moment(pattern: str) -> None:
    checked = schema({"properties": {"a": {"pattern": pattern}}})
    before = thread_time()

    assert refused(checked, {"a": "a" * (MEBIBYTE // 2) + "!"})[0] == "/a"

    assert thread_time() - before < 0.5


def test_a_stored_input_that_is_too_deep_to_be_checked_is_refused() -> None:
    value: object = 1
    for _ in range(600):
        value = [value]

    refused(schema({"properties": {"a": {"type": "integer"}}}), {"a": value})


class PanicException(BaseException):
    """As the library raises where its Rust fails."""


def test_a_failure_of_the_library_is_a_refusal_and_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checked = schema({"type": "object"})
    panic = Mock(side_effect=PanicException("index out of bounds"))
    monkeypatch.setattr(checked, "_validator", Mock(validate=panic))

    assert refused(checked, {}) == ("", "cannot be checked: the validator failed, see the log")

    assert "index out of bounds" in caplog.text
    monkeypatch.setattr("falcon_app.schemas.Draft202012Validator", panic)
    with pytest.raises(BadSchema, match="index out of bounds"):
        InputSchema("{}")


def test_threads_share_a_schema() -> None:
    wrong: list[str] = []

    def check(n: int) -> None:
        for _ in range(300):
            place, _ = refused(REPORT, {"name": "x", "rows": [0] * n + ["x"]})
            if place != f"/rows/{n}":
                wrong.append(place)

    threads = [threading.Thread(target=check, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not wrong
    assert not any(thread.is_alive() for thread in threads)

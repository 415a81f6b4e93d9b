"""Inputs: what a kind's type takes, what is said of one that does not fit, and how one is written.

The schema that is published and the type that reads are two judges of one input. Whatever the first lets in, in
whichever way it was written and as the database gives it back, the second must take.
"""

import datetime as dt
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar
from uuid import UUID

import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec import Meta

from dispatcher import BadInput
from dispatcher.bodies import takes
from dispatcher.inputs import InputType, input_type, written
from falcon_app.errors import UnfitInput
from falcon_app.schemas import InputSchema
from sql.documents import encode, read
from tests.support.database import Database

T = TypeVar("T")


class Box(msgspec.Struct, Generic[T], forbid_unknown_fields=True):
    of: T


class Place(msgspec.Struct, rename={"town": "the.town"}):
    town: str
    at: tuple[int, ...] = ()


class Report(msgspec.Struct):
    month: int
    share: float = 0.5
    places: list[Place] = []
    by_name: dict[str, list[int]] = {}
    boxes: dict[str, Box[int]] = {}
    box: Box[int] | None = None
    anything: Any = None


@dataclass
class Mail:
    to: str
    times: int = 1


class Words(TypedDict):
    text: str
    limit: NotRequired[int]


REPORT = InputType(Report)


def test_a_body_gets_the_type_that_it_names() -> None:
    assert REPORT.read('{"month": 3, "places": [{"the.town": "Graz"}]}') == Report(3, places=[Place("Graz")])
    assert InputType(Mail).read('{"to": "ann"}') == Mail("ann")
    assert InputType(Words).read('{"text": "Go one"}') == {"text": "Go one"}
    assert InputType(Box[int]).read('{"of": 3}') == Box(3)
    assert InputType(Annotated[dict[str, int], Meta(max_length=2)]).read('{"a": 3}') == {"a": 3}


def of_nothing(input): ...  # type: ignore[no-untyped-def] # noqa: A002, ANN001, ANN201


def of_any(input: Any) -> None: ...  # noqa: A002


def of_dict(input: dict) -> None: ...  # type: ignore[type-arg] # noqa: A002


def of_dict_of_any(input: "dict[str, Any]") -> None: ...  # noqa: A002


def of_object(input: object) -> None: ...  # noqa: A002


@pytest.mark.parametrize("body", [of_nothing, of_any, of_dict, of_dict_of_any, of_object])
def test_a_body_that_names_no_type_gets_a_plain_dict(body: Callable[..., object]) -> None:
    annotation, _ = takes(body)

    assert input_type(body, annotation) is None


@pytest.mark.parametrize(
    ("text", "pointer", "rule"),
    [
        ("{}", "/month", "Object missing required field `month`"),
        ('{"month": "May"}', "/month", "Expected `int`, got `str`"),
        ('{"month": 3.5}', "/month", "Expected `int`, got `float`"),
        ('{"month": 3, "places": [{"the.town": "Graz"}, {"the.town": 7}]}', "/places/1/the.town", "Expected `str`"),
        ('{"month": 3, "places": [{"the.town": "Graz", "at": [1, 2, "x"]}]}', "/places/0/at/2", "Expected `int`"),
        ('{"month": 3, "places": [{}]}', "/places/0/the.town", "Object missing required field"),
        ('{"month": 3, "by_name": {"a/b": [1, "x"]}}', "/by_name", "Expected `int`, got `str`"),
        ('{"month": 3, "boxes": {"a": {}}}', "/boxes", "Object missing required field `of`"),
        ('{"month": 3, "box": {"of": 1, "a~/`b": 2}}', "/box/a~0~1`b", "Object contains unknown field"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(text: str, pointer: str, rule: str) -> None:
    with pytest.raises(BadInput) as refused:
        REPORT.read(text)

    assert refused.value.pointer == pointer
    assert rule in refused.value.rule


@pytest.mark.parametrize("number", ["3", "3.0", "3.000", "30e-1", "0.3e1", "3E0"])
def test_a_whole_number_is_an_int_however_it_is_written(number: str) -> None:
    taken = REPORT.read(f'{{"month": {number}, "share": {number}, "anything": {number}}}')

    assert isinstance(taken, Report)
    assert (taken.month, taken.share, taken.anything) == (3, 3.0, 3)
    assert (type(taken.month), type(taken.share), type(taken.anything)) == (int, float, int)


def test_text_that_looks_like_a_number_stays_as_it_is() -> None:
    text = r'{"to": "3.0 \" 4.0, \\\" 5.0e1", "times": 2.0}'

    assert InputType(Mail).read(text) == Mail('3.0 " 4.0, \\" 5.0e1', 2)


@pytest.mark.parametrize("chosen", [InputType(Report), None])
@pytest.mark.parametrize("value", [[], "text", 3, None, object()])
def test_only_an_object_is_an_input(chosen: InputType | None, value: object) -> None:
    with pytest.raises(BadInput, match=r"expected .*dict, got"):
        written(value, chosen, max_depth=64, max_bytes=1000)


def test_an_instance_of_the_type_and_the_dict_that_it_is_read_from_are_written_alike() -> None:
    report = Report(3, places=[Place("Graz", (1,))])
    same = {
        "month": 3,
        "share": 0.5,
        "places": [{"the.town": "Graz", "at": [1]}],
        "by_name": {},
        "boxes": {},
        "box": None,
        "anything": None,
    }

    for value in (report, same, {**same, "places": [Place("Graz", (1,))]}):
        assert json.loads(written(value, REPORT, max_depth=64, max_bytes=1000)) == same


def test_an_instance_of_another_type_is_refused() -> None:
    with pytest.raises(BadInput, match="expected Report or dict, got Mail"):
        written(Mail("ann"), REPORT, max_depth=64, max_bytes=1000)


class Loose(msgspec.Struct):
    text: str
    at: dt.datetime | None = None
    of: Any = None


@pytest.mark.parametrize(
    ("value", "pointer", "rule"),
    [
        ({"text": "a\0b"}, "/text", "U+0000"),
        ({"text": "\ud800"}, "/text", "surrogate"),
        ({"text": "a", "of": [1, math.nan]}, "/of/1", "not finite"),
        ({"text": "a", "of": 2**63}, "/of", "64 bits"),
        ({"text": "a", "of": [[[[]]]]}, "/of/0/0/0", "nested more than 4 deep"),
        ({"text": "a" * 1000}, "/text", "more than 1000 bytes"),
    ],
)
def test_what_no_row_can_hold_is_refused_with_its_place(value: dict[str, Any], pointer: str, rule: str) -> None:
    for chosen, given_ in ((None, value), (InputType(Loose), value), (InputType(Loose), Loose(**value))):
        with pytest.raises(BadInput) as refused:
            written(given_, chosen, max_depth=4, max_bytes=1000)

        assert refused.value.pointer == pointer
        assert rule in refused.value.rule


def test_what_is_no_json_is_written_where_the_type_says_how() -> None:
    now = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)

    text = written(Loose("a", now, UUID(int=7)), InputType(Loose), max_depth=64, max_bytes=1000)

    assert json.loads(text) == {"text": "a", "at": "2026-01-31T12:00:00Z", "of": str(UUID(int=7))}
    with pytest.raises(BadInput, match=r"datetime is not a JSON value \(at /at\)"):
        written({"at": now}, None, max_depth=64, max_bytes=1000)


def test_a_value_that_misbehaves_is_a_bad_input() -> None:
    class Failing(dict[str, Any]):
        def items(self) -> Any:
            raise KeyError("no items")

    for chosen in (None, REPORT):
        with pytest.raises(BadInput):
            written({"month": Failing(), "x": {1: object()}}, chosen, max_depth=64, max_bytes=1000)


Shape = tuple[Any, st.SearchStrategy[Any]]
"""A type, and values of which many fit it."""

WHOLE = st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)
NUMBERS = (
    WHOLE
    | st.integers(-5, 5).map(float)
    | st.floats(-1e300, 1e300, allow_nan=False).filter(lambda number: number == 0 or abs(number) > 1e-300)
    | st.sampled_from([1e15, 2.0**53, 1e16, 1e19, -1e20, 1e23, 1e300, 0.5, 1.5])
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


TEXTS = [
    *("2026-01-31", "2026-02-30", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "2026-12-31T23:59:60Z"),
    *("12:00:00+01:00", "12:00:00", "P1D", "P1M", "PT1H", "1.50", "NaN", "1e3", "", "a"),
    *("00000000-0000-0000-0000-000000000007", "00000000000000000000000000000007", "{00000007}"),
]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


SCALARS: list[Shape] = [
    (int, NUMBERS),
    (float, NUMBERS),
    (str, TEXT),
    (bool, st.booleans()),
    (None, st.none()),
    (Any, ANYTHING),
    (int | str, NUMBERS | TEXT),
    (int | float, NUMBERS),
    (float | None, NUMBERS | st.none()),
    (int | bool | None, NUMBERS | st.booleans() | st.none()),
    (Colour, st.sampled_from(["red", "blue", "green"])),
    (Level, st.sampled_from([1, 2.0, 3, 1.0, True])),
    (Literal[1, "one"] | None, st.sampled_from([1, 1.0, "one", None, True, "1"])),
    (Annotated[int, Meta(ge=-2, lt=4)], NUMBERS),
    (Annotated[float, Meta(gt=0, le=4)], NUMBERS),
    (Annotated[int, Meta(multiple_of=2)], st.integers(-9, 9) | st.integers(-9, 9).map(float)),
    (Annotated[str, Meta(min_length=1, max_length=3)], TEXT),
    *((of, st.sampled_from(TEXTS)) for of in (dt.date, dt.timedelta, UUID, Decimal)),
    (Annotated[dt.datetime, Meta(tz=True)], st.sampled_from(TEXTS)),
    (Annotated[dt.time, Meta(tz=True)] | None, st.sampled_from(TEXTS)),
]


@st.composite
def shapes(draw: st.DrawFn, depth: int = 2) -> Shape:
    """Draw a type and what values to try it with; most fit its outline."""
    if depth == 0:
        return draw(st.sampled_from(SCALARS))
    kind = draw(st.sampled_from(["scalar", "list", "tuple", "pair", "dict", "optional", "object"]))
    if kind == "scalar":
        return draw(st.sampled_from(SCALARS))
    if kind == "object":
        return draw(objects(depth=depth - 1))
    of, values = draw(shapes(depth=depth - 1))
    match kind:
        case "list":
            return Annotated[list[of], Meta(min_length=1)], st.lists(values, max_size=3)  # type: ignore[valid-type]
        case "tuple":
            return tuple[of, ...], st.lists(values, max_size=3)  # type: ignore[valid-type]
        case "pair":
            pairs = st.tuples(values, NUMBERS) | st.lists(values, max_size=3)
            return tuple[of, int], pairs  # type: ignore[valid-type]
        case "dict":
            named = st.dictionaries(TEXT, values, max_size=3)
            return Annotated[dict[str, of], Meta(max_length=2)], named  # type: ignore[valid-type]
        case _:
            return (of | None if of not in {Any, None} else of), values | st.none()


@st.composite
def objects(draw: st.DrawFn, depth: int = 2) -> Shape:
    """Draw a Struct or a TypedDict, and objects that have its members or nearly those."""
    members = draw(st.lists(shapes(depth=depth), max_size=3))
    names = [f"m{number}" for number in range(len(members))]
    needed = draw(st.sets(st.sampled_from(names))) if names else set()
    if draw(st.booleans()):
        fields = [
            (name, of) if name in needed else (name, of | msgspec.UnsetType, msgspec.UNSET)
            for name, (of, _) in zip(names, members, strict=True)
            if name in needed or of not in {Any, None}
        ]
        made: Any = msgspec.defstruct(
            "Made",
            sorted(fields, key=len),
            forbid_unknown_fields=draw(st.booleans()),
            tag=draw(st.sampled_from([None, "made", 7])),
        )
    else:
        hints = {name: of if name in needed else NotRequired[of] for name, (of, _) in zip(names, members, strict=True)}
        made = TypedDict("Made", hints)  # type: ignore[misc, no-redef]
    values = st.fixed_dictionaries(
        {
            name: of | ANYTHING if draw(st.integers(0, 9)) == 0 else of
            for name, (_, of) in zip(names, members, strict=True)
        },
        optional={"type": st.sampled_from(["made", 7, 7.0]), "more": ANYTHING},
    )
    return made, values | values.map(lambda value: dict(list(value.items())[1:]))


@given(st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_the_published_schema_accepts_the_type_takes(database: Database, data: st.DataObject) -> None:
    made, values = data.draw(objects())
    chosen = InputType(made)
    value = data.draw(values)
    sent = encode(value)
    stored = str(database.value("select %s::jsonb::text", (sent,)))
    plainly = jsonschema_rs.validator_for(chosen.schema).is_valid
    door = InputSchema(json.dumps(chosen.schema))

    def admitted(text: str) -> bool:
        try:
            door.check(read(text))
        except UnfitInput:
            return False
        return True

    assert plainly(read(sent)) == plainly(read(stored)), "the schema says the same of what came and of what is stored"
    assert admitted(sent) == admitted(stored)
    assert plainly(read(sent)) or not admitted(sent)
    event("admitted" if admitted(sent) else "refused")
    if admitted(sent):
        chosen.read(sent)
        chosen.read(stored)

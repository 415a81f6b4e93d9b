"""The rule book, as HTTP answers it: what may be stored comes back equal, the rest is refused at its place, no row."""

import json
import time
from decimal import Decimal

import pytest

from falcon_app.errors import Problem
from falcon_app.payloads import read_payload
from tests.api.conftest import JSON, Api, assert_problem, row_count
from tests.support.database import Database

MALFORMED = {
    "an escaped NUL": (rb'{"a": "x\u0000y"}', "/a"),
    "an escaped NUL in a key": (rb'{"a": {"b\u0000": 1}}', "/a"),
    "an escaped NUL in kind": (rb'{"kind": "a\u0000", "input": {}}', "/kind"),
    "a NUL byte in a string": (b'{"a": "x\0y"}', ""),
    "a NUL byte": (b'{"a": 1}\0', ""),
    "a lone surrogate": (rb'{"a": ["\ud800"]}', "/a/0"),
    "a lone surrogate as key": (rb'{"\udfff": 1}', ""),
    "surrogates the wrong way round": (rb'{"a": "\ude00\ud83d"}', "/a"),
    "NaN": (b'{"a": NaN}', "/a"),
    "Infinity": (b'{"a": {"b~/c": [1, Infinity]}}', "/a/b~0~1c/1"),
    "minus Infinity": (b'{"a": -Infinity}', "/a"),
    "NaN as the whole": (b"NaN", ""),
    "a number too large": (b'{"a": 1e400}', "/a"),
    "a number too small": (b'{"a": 1E-400}', "/a"),
    "an integer too large": (b'{"a": 9223372036854775808}', "/a"),
    "a duplicate key": (b'{"a": {"k": 1, "k": 2}}', "/a/k"),
    "a duplicate key, once escaped": (b'{"kind": "a", "k\\u0069nd": "b", "input": {}}', "/kind"),
    "a duplicate kind": (b'{"kind":"a","kind":"b","input":{}}', "/kind"),
    "a duplicate input": (b'{"kind":"a","input":{},"input":{"a":1}}', "/input"),
    "a trailing comma": (b'{"a": 1,}', ""),
    "two documents": (b"{}{}", ""),
    "a comment": (b"{} // no", ""),
    "single quotes": (b"{'a': 1}", ""),
    "a leading zero": (b'{"a": 01}', ""),
    "a control character": (b'{"a": "\n"}', ""),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', ""),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), ""),
    "a broken pair of bytes": (b'{"a": "\xc3\x28"}', ""),
    "an encoded surrogate": (b'{"a": "\xed\xa0\x80"}', ""),
    "a truncated character": (b'{"a": "\xe2\x82', ""),
    "Latin-1": ('{"a": "é"}'.encode("latin-1"), ""),
    "half a document": (b'{"a": ', ""),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_cannot_be_stored_is_malformed_at_its_place(name: str) -> None:
    body, pointer = MALFORMED[name]

    with pytest.raises(Problem) as raised:
        read_payload(body, 64)

    assert (raised.value.code, raised.value.pointer) == ("malformed-body", pointer)


def test_what_cannot_be_stored_is_400_without_a_row(api: Api, database: Database) -> None:
    for body, pointer in MALFORMED.values():
        assert_problem(api.post(body), 400, "malformed-body", pointer)

    assert row_count(database) == 0


def test_an_empty_body_is_400(api: Api) -> None:
    for body in (b"", b"  \r\n\t "):
        assert_problem(api.post(body), 400, "malformed-body")
    assert_problem(api.public.simulate_post("/tasks"), 400, "malformed-body")


SHAPES = [
    (b"[]", "invalid-input", ""),
    (b'"text"', "invalid-input", ""),
    (b"null", "invalid-input", ""),
    (b"3", "invalid-input", ""),
    (b'{"kind": "echo"}', "invalid-input", "/input"),
    (b'{"kind": "echo", "input": []}', "invalid-input", "/input"),
    (b'{"kind": "echo", "input": null}', "invalid-input", "/input"),
    (b'{"kind": "", "input": {}}', "invalid-input", "/kind"),
    (b'{"kind": null, "input": {}}', "invalid-input", "/kind"),
    (b'{"kind": 1, "input": {}}', "invalid-input", "/kind"),
    (json.dumps({"kind": "k" * 256, "input": {}}).encode(), "invalid-input", "/kind"),
    (json.dumps({"kind": "é" * 128, "input": {}}).encode(), "invalid-input", "/kind"),
    (b'{"kind": "echo", "input": {}, "priority": 1}', "unknown-member", "/priority"),
    (b'{"kind": "echo", "input": {}, "a/b~c": 1}', "unknown-member", "/a~1b~0c"),
]


def test_another_shape_is_422_with_its_place_and_no_row(api: Api, database: Database) -> None:
    for body, code, pointer in SHAPES:
        assert_problem(api.post(body), 422, code, pointer)

    assert row_count(database) == 0


def test_what_may_be_stored_comes_back_equal(api: Api) -> None:
    values: list[object] = [
        {"a": "\\u0000"},
        {"a": "\U0001f600", "\U0001f600": "\U0010ffff"},
        {"n": [0, -1, 2**63 - 1, -(2**63), 1.5, -2.5e-308, True, None]},
        {"": {"": ""}},
        {"a": "\ufffe\uffff\x7f\x85\u2028"},
    ]
    for value in values:
        answer = api.post({"kind": "echo", "input": value})

        assert answer.status_code == 202
        assert api.get(answer.json["id"]).json["input"] == value


def test_the_largest_double_is_kept_to_the_digit(api: Api) -> None:
    answer = api.post(b'{"n": 1.7976931348623157e308}')

    kept = json.loads(answer.content, parse_int=Decimal, parse_float=Decimal)["input"]["n"]
    assert kept == Decimal("1.7976931348623157e308")


def test_numbers_that_would_come_back_as_many_times_the_body_are_400(api: Api, database: Database) -> None:
    answer = api.post(b'{"a": [' + b",".join([b"1e308"] * 170_000) + b"]}")

    problem = assert_problem(answer, 400, "malformed-body", pointer=answer.json["pointer"])
    assert problem["pointer"].startswith("/a/")
    assert row_count(database) == 0


def test_an_escaped_pair_of_surrogates_is_its_character(api: Api) -> None:
    assert api.post(rb'{"a": "\ud83d\ude00"}').json["input"] == {"a": "\U0001f600"}


def test_a_kind_of_255_bytes_is_taken(api: Api) -> None:
    assert api.post({"kind": "é" * 127 + "k", "input": {}}).status_code == 202


def test_plain_forms_of_a_number_are_equal_to_what_was_sent(api: Api) -> None:
    for number in (b"-0", b"-0.0", b"0e0", b"1E+2"):
        assert api.post(b'{"n": %s}' % number).json["input"]["n"] == float(number)


def test_deep_nesting_is_400_and_hurts_nobody(api: Api, database: Database) -> None:
    for levels in (100, 1_000, 2_000, 20_000, 160_000):
        for nested in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b"1" + b"}" * levels):
            answer = api.post(b'{"a": %s}' % nested)

            assert (answer.status_code, answer.json["code"]) == (400, "malformed-body")

    assert row_count(database) == 0
    assert api.post({"text": "x"}).status_code == 202


@pytest.mark.parametrize("wrapped", [True, False])
def test_depth_is_counted_from_the_input(api: Api, wrapped: bool) -> None:
    def body(levels: int) -> bytes:
        nested = b'{"a":' * levels + b"1" + b"}" * levels
        return b'{"kind":"echo","input":%s}' % nested if wrapped else nested

    deepest = api.post(body(64))

    assert deepest.status_code == 202
    assert api.get(deepest.json["id"]).status_code == 200
    assert_problem(api.post(body(65)), 400, "malformed-body", "/input" * wrapped + "/a" * 64)


def test_a_long_integer_is_refused_in_no_time(api: Api) -> None:
    started = time.monotonic()

    for digits in (4_300, 4_301, 100_000, 1_000_000):
        assert_problem(api.post(b'{"a": %s}' % (b"9" * digits)), 400, "malformed-body", "/a")

    assert time.monotonic() - started < 1


def test_another_media_type_is_415(api: Api, database: Database) -> None:
    plain = ["text/plain", "application/x-www-form-urlencoded", "application/problem+json", "multipart/form-data", ""]
    odd = ["application/json; charset=latin-1", "application/json, application/json", "*/*", "json", "\xff"]
    for media_type in (*plain, *odd):
        assert_problem(api.post(b"{}", {"Content-Type": media_type}), 415, "unsupported-media-type")

    assert row_count(database) == 0


def test_no_media_type_is_415(api: Api) -> None:
    assert_problem(api.public.simulate_post("/tasks", body=b"{}"), 415, "unsupported-media-type")


def test_json_may_say_more_of_itself(api: Api) -> None:
    for media_type in ("Application/JSON", 'application/json; charset="UTF-8"', "application/json;v=1"):
        assert api.post(b"{}", {"Content-Type": media_type}).status_code == 202


def test_an_encoded_body_is_415(api: Api) -> None:
    assert_problem(api.post(b"{}", {**JSON, "Content-Encoding": "gzip"}), 415, "unsupported-media-type")


def test_a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_413(api: Api, database: Database) -> None:
    limit = api.settings.max_body_bytes
    frame = len(b'{"text":""}')

    assert api.post(b'{"text":"%s"}' % (b"x" * (limit - frame))).status_code == 202
    assert_problem(api.post(b'{"text":"%s"}' % (b"x" * (limit - frame + 1))), 413, "body-too-large")

    assert row_count(database) == 1

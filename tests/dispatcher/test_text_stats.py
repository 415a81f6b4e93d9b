"""The built-in kind: what separates words, what is counted, what is refused."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dispatcher.context import Cancel, Context
from dispatcher.failures import Failed
from dispatcher.kinds import KINDS
from dispatcher.text_stats import declare

# Unicode's PropList.txt, White_Space: ranges of code points, first and last.
PROPERTY = [
    (0x0009, 0x000D),
    (0x0020, 0x0020),
    (0x0085, 0x0085),
    (0x00A0, 0x00A0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
]


@pytest.fixture(autouse=True)
def _declared() -> Iterator[None]:
    known = dict(KINDS)
    declare(1_000_000)
    yield
    KINDS.clear()
    KINDS.update(known)


def count(text: object, **more: object) -> Any:
    return KINDS["text.stats"]({"text": text, **more}, Context(1, 1, Cancel()))


def test_the_readme_example() -> None:
    assert count("Go one") == {"words": 2, "bytes": 6, "runes": 6}


def test_exactly_the_code_points_of_the_property_separate() -> None:
    property_ = {point for first, last in PROPERTY for point in range(first, last + 1)}
    surrogates = range(0xD800, 0xE000)
    others = [chr(point) for point in range(sys.maxunicode + 1) if point not in property_ and point not in surrogates]

    assert [point for point in sorted(property_) if count(f"a{chr(point)}b")["words"] != 2] == []
    assert count("a" + "".join(others) + "b")["words"] == 1


@pytest.mark.parametrize("separator", ["\x85", "\xa0", "\u3000", "\u2028", "\u1680", "\v", "\r\n"])
def test_a_space_of_any_script_separates(separator: str) -> None:
    assert count(f"Go{separator}one")["words"] == 2


@pytest.mark.parametrize("character", ["\x1c", "\x1d", "\x1e", "\x1f", "\u200b", "\u180e", "\ufeff", "\u2060"])
def test_what_only_looks_like_a_space_does_not_separate(character: str) -> None:
    assert count(f"Go{character}one")["words"] == 1


@pytest.mark.parametrize("text", ["", " ", " \u3000\t\n"])
def test_a_text_without_words_has_none(text: str) -> None:
    assert count(text) == {"words": 0, "bytes": len(text.encode()), "runes": len(text)}


def test_spaces_around_and_between_make_no_words() -> None:
    assert count("  Go \n\n one  ")["words"] == 2


def test_characters_beyond_the_first_plane_are_one_rune_and_four_bytes() -> None:
    assert count("\U0001f600 \U00010348") == {"words": 2, "bytes": 9, "runes": 3}


def test_a_text_over_the_limit_fails_with_both_numbers() -> None:
    declare(3)

    assert count("one two three")["words"] == 3
    with pytest.raises(Failed, match=re.escape("text has 4 words, the limit is 3")):
        count("one two three four")


def test_a_limit_of_none_lets_a_blank_text_pass() -> None:
    declare(0)

    assert count(" ")["words"] == 0


@pytest.mark.parametrize("given", [{}, {"text": 7}, {"text": None}, {"text": ["a"]}, {"text": "a", "more": 1}])
def test_any_other_input_fails(given: dict[str, Any]) -> None:
    with pytest.raises(Failed, match="takes"):
        KINDS["text.stats"](given, Context(1, 1, Cancel()))


def test_wc_separates_words_at_the_same_characters_but_for_four(tmp_path: Path) -> None:
    property_marks = [chr(code) for first, last in PROPERTY for code in range(first, last + 1)]
    marks = [*property_marks, *"\x1c\x1d\x1e\x1f\u200b\u2060\ufeff"]
    for mark in marks:
        (tmp_path / f"{ord(mark):04x}").write_bytes(f"a{mark}b".encode())
    printed = subprocess.check_output(
        ["wc", "-w", *(f"{ord(mark):04x}" for mark in marks)],
        cwd=tmp_path,
        env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
        text=True,
    )
    counted = {name: int(words) for words, name in (line.split() for line in printed.splitlines()[:-1])}

    differing = {mark for mark in marks if count(f"a{mark}b")["words"] != counted[f"{ord(mark):04x}"]}

    # As docs/decisions/0008-what-a-word-is.md lists them.
    assert differing == set("\x85\u2028\u2029\u2060")

"""The built-in kind `text.stats`: words, bytes and runes of a text, as `wc -w -c -m` counts them in UTF-8."""

from typing import Any, Final

from dispatcher.context import Context
from dispatcher.failures import Failed
from dispatcher.kinds import task

NOT_WHITE_SPACE: Final = "\x1c\x1d\x1e\x1f"
"""Where str.split() separates and Unicode's property White_Space does not."""


def declare(max_words: int) -> None:
    """Declare the kind; a text of more than `max_words` words is FAILED."""

    @task("text.stats")
    def text_stats(input: dict[str, Any], context: Context) -> dict[str, int]:  # noqa: A002, ARG001 - as every body
        """Count `{"text": string}`: a word is a maximal run of code points without the White_Space property."""
        text = input.get("text")
        if not isinstance(text, str) or len(input) != 1:
            raise Failed('text.stats takes {"text": string} and nothing else')
        words = _words(text)
        if words > max_words:
            raise Failed(f"text has {words} words, the limit is {max_words}")
        return {"words": words, "bytes": len(text.encode()), "runes": len(text)}


def _words(text: str) -> int:
    for character in NOT_WHITE_SPACE:
        text = text.replace(character, "x")
    return len(text.split())

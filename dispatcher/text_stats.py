"""The built-in kind `text.stats`: words, bytes and runes of a text, as `wc -w -c -m` counts them in UTF-8."""

import re
from typing import Any, Final

from dispatcher.kinds import Context, Failed, task

# Unicode's White_Space property. str.split() also separates at U+001C to U+001F, which do not have it, and so
# does a regular expression's \s.
WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WORD: Final = re.compile(f"[^{WHITE_SPACE}]+")


def declare(max_words: int) -> None:
    """Declare the kind; a text of more than `max_words` words is FAILED."""

    @task("text.stats")
    def text_stats(input: dict[str, Any], context: Context) -> dict[str, int]:  # noqa: A002, ARG001 - as every body
        """Count `{"text": string}`: a word is a maximal run of code points without the White_Space property."""
        text = input.get("text")
        if not isinstance(text, str) or len(input) != 1:
            raise Failed('text.stats takes {"text": string} and nothing else')
        words = sum(1 for _ in _WORD.finditer(text))
        if words > max_words:
            raise Failed(f"text has {words} words, the limit is {max_words}")
        return {"words": words, "bytes": len(text.encode()), "runes": len(text)}

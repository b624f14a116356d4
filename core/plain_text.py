"""Untrusted texts made harmless: cut, control characters visible, never a formula.

A name may hold what steers a terminal, turns the writing direction, or is not seen at all:
such a character is shown by its number.
"""

import html
import re
from collections.abc import Sequence

MAX_NAME_CHARS = 300
MAX_CELL_CHARS = 4_000
ELLIPSIS = "\u2026"
_SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20\u2212"
"""What a formula begins with; also as full-width signs, which spreadsheets of some locales take."""
_BLANKS = "\t\r\n\v\f \u00a0\u200b\u200c\u200d\u2060\u3000\ufeff\0"
_NUMBER = re.compile(
    r"[+\-\u2212]?\d[\d.,\u202f\u00a0 ]*([eE][+-]?\d+)?[\u00a0\u202f ]?"
    r"[A-Za-z%/\u00b5\u00d7]{0,12}\Z"
)
_STEERING = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    r"\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]|\r(?!\n)"
)
_STEERS = re.compile(_STEERING)
_HIDDEN = re.compile(_STEERING + r"|[\u00ad\u034f\u180e\u200b-\u200d\u2060-\u206f\ufeff]")


def inert(text: str) -> str:
    """Return a text that neither steers a terminal nor turns the writing direction.

    Escapes are JSON's own, so that a document parses to the same value.
    """
    return _STEERS.sub(_number, text)


def visible(text: str) -> str:
    """Return a text all of whose characters are seen: `inert`, and none without width."""
    return _HIDDEN.sub(_number, text)


def escape(text: str) -> str:
    """Return a text as HTML, SVG and XML take it: as it is seen."""
    return html.escape(visible(text))


def _number(match: re.Match[str]) -> str:
    code = ord(match[0])
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{code:04x}" if high < 0 else f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def cut(text: str, max_chars: int = MAX_NAME_CHARS) -> str:
    """Return a text of at most `max_chars`, an ellipsis where something is missing."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + ELLIPSIS


def some_of(texts: Sequence[str], most: int, between: str = ", ", beyond: str = " and ") -> str:
    """Return the first texts in one, and how many more there are."""
    num_more = len(texts) - most
    more = f"{beyond}{num_more} more" if num_more > 0 else ""
    return between.join(texts[:most]) + more


def is_formula(text: str) -> bool:
    """Say whether a spreadsheet may take a cell for a formula: numbers with a unit are not."""
    begins_blank = text[:1] in ("\t", "\r", "\n", "\v", "\f", "\0")
    inner = text.lstrip(_BLANKS)
    if inner[:1] in tuple(_SIGNS) and not _NUMBER.match(inner):
        return True
    return begins_blank and bool(text)

"""Texts that others chose, kept from being more than text: cut, and no formula of a spreadsheet."""

import re

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


def cut(text: str, max_chars: int = MAX_NAME_CHARS) -> str:
    """Return a text of at most `max_chars`, an ellipsis where something is missing."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + ELLIPSIS


def is_formula(text: str) -> bool:
    """Say whether a spreadsheet may take a cell for a formula: numbers with a unit are none."""
    begins_blank = text[:1] in ("\t", "\r", "\n", "\v", "\f", "\0")
    inner = text.lstrip(_BLANKS)
    if inner[:1] in tuple(_SIGNS) and not _NUMBER.match(inner):
        return True
    return begins_blank and bool(text)

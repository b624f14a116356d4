"""The pattern that finds a number in what a program prints. Standard library only."""

import re

from core.errors import UserError

BETTER = ("higher", "lower")
"""What a pattern may call its group, to say which numbers are better."""
MAX_CHARS = 2000
_SHOWN_CHARS = 200


def metric_pattern(text: str) -> re.Pattern[str]:
    """Return the compiled pattern; UserError unless it is one with exactly one group."""
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    if len(text) > MAX_CHARS:
        raise UserError(f"metric: {shown!r} has {len(text)} characters; at most {MAX_CHARS}")
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(f"metric: {shown!r} is not a regular expression: {error}") from error
    if pattern.groups != 1:
        raise UserError(
            f"metric: {shown!r} has {pattern.groups} groups; put the number, alone, in "
            r"parentheses: 'tok/s: ([0-9.]+)'"
        )
    return pattern


def metric_name(text: str) -> str:
    """Return the words of a pattern: `tok/s: ([0-9.]+)` is `tok/s`."""
    outside = re.sub(r"\((?:[^()\\]|\\.)*\)", " ", text)
    words = re.sub(r"\\[sSdDwWbB][*+?]?|[\\^$*+?.|\[\]{}()]", " ", outside)
    return " ".join(words.split()).strip(" :=,;") or "metric"

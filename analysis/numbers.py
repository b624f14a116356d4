"""Numbers as a tool prints them under any locale, with the style inferred from a whole file.

One token such as `567.961` can be 567 961 or 567.961; the tokens beside it say which. Where none of
them does, the answer is "ambiguous": being off by a factor of 1000 is worse than refusing.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

SPACES = " \u00a0\u202f\u2009"
APOSTROPHES = "'\u2019\u2018"
_GROUP_ONLY = SPACES + APOSTROPHES + "_"
_NUMBER = re.compile(
    rf"[+-]?(?:\d[\d.,{re.escape(_GROUP_ONLY)}]*|[.,]\d+)(?:[eE][+-]?\d+)?", re.ASCII
)
_ONE_MARK = re.compile(r"[+-]?(\d*)([.,])(\d*)(?:[eE][+-]?\d+)?", re.ASCII)
_EXPONENT = re.compile(r"[eE]")
_GROUPED = {m: re.compile(rf"\d{{1,3}}(?:[{m}]\d{{2,3}})*[{m}]\d{{3}}") for m in ".,"}
_MISSING = frozenset({"", "n/a", "nan", "-nan", "inf", "-inf", "+inf", "none", "null", "-"})


class AmbiguousNumberError(ValueError):
    """Report tokens that no single number style explains; the message names the tokens."""


_KEPT_TOKENS = 1 << 16
"""A capture repeats its numbers (sizes, limits, zeros) from launch to launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberStyle:
    """A decimal mark and a thousands mark; `group` is empty where the file shows none."""

    decimal: str
    group: str = ""


PLAIN = NumberStyle(decimal=".")


@lru_cache(maxsize=_KEPT_TOKENS)
def looks_numeric(token: str) -> bool:
    """Return whether the token has the shape of a number in some locale."""
    return _NUMBER.fullmatch(token.strip()) is not None


def is_missing(token: str) -> bool:
    """Return whether the token means "no value": empty, n/a, nan, inf."""
    return token.strip().lower() in _MISSING


@dataclass(slots=True)
class _Evidence:
    """One token that shows each reading of a mark, and the tokens that show none."""

    decimal: dict[str, str]
    group: dict[str, str]
    undecided: dict[str, str]


def _weigh(token: str, seen: _Evidence) -> None:
    text = token.strip()
    if simple := _ONE_MARK.fullmatch(text):
        _weigh_mark(token, seen, *simple.groups(), is_grouped=False)
        return
    body = _EXPONENT.split(text.lstrip("+-"), maxsplit=1)[0]
    own_groups = [c for c in body if c in _GROUP_ONLY]
    for mark in own_groups:
        seen.group.setdefault(_class_of(mark), token)
    marks = [c for c in body if c in ".,"]
    if not marks:
        return
    last = marks[-1]
    if len(set(marks)) == 2:
        seen.decimal.setdefault(last, token)
        seen.group.setdefault(marks[0], token)
        return
    if len(marks) > 1:
        if _GROUPED[last].fullmatch(body):  # else a version such as 12.10.1
            seen.group.setdefault(last, token)
        return
    _weigh_mark(token, seen, *body.partition(last), is_grouped=bool(own_groups))


def _weigh_mark(
    token: str, seen: _Evidence, head: str, mark: str, tail: str, *, is_grouped: bool
) -> None:
    """Weigh a number's only point or comma; `is_grouped`: other marks stand before it."""
    if is_grouped or len(tail) != 3 or not head or head.startswith("0") or len(head) > 3:
        seen.decimal.setdefault(mark, token)
    else:
        seen.undecided.setdefault(mark, token)


def _class_of(mark: str) -> str:
    """Return the mark's family: a file may mix kinds of blanks or of apostrophes."""
    if mark in SPACES:
        return " "
    return "'" if mark in APOSTROPHES else mark


def candidate_styles(tokens: Iterable[str]) -> tuple[NumberStyle, ...]:
    """Return the styles under which every token is a number: one, or two where it is open.

    Raises AmbiguousNumberError where tokens contradict each other.
    """
    seen = _Evidence({}, {}, {})
    for token in dict.fromkeys(tokens):
        if not token.isdigit() and looks_numeric(token):  # digits alone show no mark
            _weigh(token, seen)
    both = set(seen.decimal) & set(seen.group)
    if both or len(seen.decimal) > 1 or len(seen.group) > 1:
        shown = sorted({*seen.decimal.values(), *seen.group.values()})[:4]
        raise AmbiguousNumberError(f"numbers of two styles: {', '.join(map(repr, shown))}")
    group = next(iter(seen.group), "")
    if seen.decimal:
        decimal = next(iter(seen.decimal))
        other = "," if decimal == "." else "."
        if not group and other in seen.undecided:
            group = other
        if group not in ("", other) and other in seen.undecided:
            raise AmbiguousNumberError(f"numbers of two styles: {seen.undecided[other]!r}")
        return (NumberStyle(decimal=decimal, group=group),)
    return _open_styles(seen, group)


def _open_styles(seen: _Evidence, group: str) -> tuple[NumberStyle, ...]:
    if group in (".", ","):
        decimal = "," if group == "." else "."
        return (NumberStyle(decimal=decimal, group=group),)
    if len(seen.undecided) > 1:
        # "1.234" and "1,234" alike: one mark is the decimal, but either may be.
        return (NumberStyle(decimal=".", group=","), NumberStyle(decimal=",", group="."))
    mark = next(iter(seen.undecided), None)
    if mark is None:
        return (NumberStyle(decimal=".", group=group),)
    other = "," if mark == "." else "."
    if group:
        return (NumberStyle(decimal=mark, group=group),)
    return (NumberStyle(decimal=mark), NumberStyle(decimal=other, group=mark))


@lru_cache(maxsize=_KEPT_TOKENS)
def parse_number(token: str, style: NumberStyle) -> float:
    """Return the value, NaN for a missing one; ValueError where the token breaks the style."""
    text = token.strip()
    if is_missing(text):
        return float("nan")
    if not looks_numeric(text):
        raise ValueError(f"{token!r} is not a number")
    mantissa, _, exponent = re.sub("[E]", "e", text).partition("e")
    whole, mark, fraction = mantissa.partition(style.decimal)
    if style.group:
        whole = _ungroup(whole, style.group, token)
    if not re.fullmatch(r"[+-]?\d*", whole) or (mark and not fraction.isdigit() and fraction):
        raise ValueError(f"{token!r} does not fit the numbers around it")
    value = float(f"{whole or '0'}.{fraction or '0'}" + (f"e{exponent}" if exponent else ""))
    if math.isinf(value):
        raise ValueError(f"{token!r} is larger than any number that can be kept")
    return value


def parsed(tokens: Iterable[str], style: NumberStyle) -> dict[str, float | str]:
    """Return each token's value, NaN for a missing one, or the words why it breaks the style.

    Tokens that are not numbers in any locale are left out.
    """
    values: dict[str, float | str] = {}
    for token in dict.fromkeys(tokens):
        if looks_numeric(token) or is_missing(token):
            try:
                values[token] = parse_number(token, style)
            except ValueError as exc:
                values[token] = str(exc)
    return values


def _ungroup(whole: str, group: str, token: str) -> str:
    parts = re.split(f"[{re.escape(_family(group))}]", whole)
    head, rest = parts[0].lstrip("+-"), parts[1:]
    good = len(head) <= 3 and head[:1] != "0" and all(len(p) in (2, 3) for p in rest)
    if rest and not (good and head and len(rest[-1]) == 3):
        raise ValueError(f"{token!r} does not fit the numbers around it")
    return "".join(parts)


def _family(group: str) -> str:
    return {" ": SPACES, "'": APOSTROPHES}.get(group, group)

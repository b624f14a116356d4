"""A rule: a pattern, the text of a name it looks in, and what it means. The first match decides.

The built-in rules are `rules.toml` of this folder; a user's own are `rules.toml` of the data
directory.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from analysis.classify.classes import Category, Origin
from analysis.classify.names import NameView
from core.errors import UserError

RULES_PATH = Path(__file__).with_name("rules.toml")


class Field(StrEnum):
    """Which text of `NameView` a pattern is searched in."""

    TEXT = "text"
    HEAD = "head"
    BASE = "base"
    WORDS = "words"
    HEAD_WORDS = "head_words"
    INNER_WORDS = "inner_words"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One ordered rule. A rule gives a category, an origin, or (user rules) both."""

    id: str
    where: Field
    pattern: str
    category: Category | None = None
    origin: Origin | None = None
    example: str
    "A name that this rule decides; tested."
    why: str
    "The reason or the source of the family."
    confidence: float = 0.9
    unless: str = ""
    "A second pattern in the same text; where it is found, the rule does not apply."

    def matches(self, seen: NameView, *, instead: Field | None = None) -> bool:
        """Say whether the pattern is found in the rule's text of the name (or in `instead`)."""
        text = getattr(seen, instead or self.where)
        if compiled(self.pattern).search(text) is None:
            return False
        return not self.unless or compiled(self.unless).search(text) is None


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern compiled, once it is needed: all rules together take 0.1 s; re.error."""
    return re.compile(pattern)


def first_match(
    rules: Sequence[Rule], seen: NameView, *, instead: Field | None = None
) -> Rule | None:
    """Return the first rule that matches, or None; `instead` replaces the rules' own text."""
    return next((rule for rule in rules if rule.matches(seen, instead=instead)), None)


@cache
def built_in_rules() -> Mapping[str, tuple[Rule, ...]]:
    """Return the groups of `rules.toml`, each in order. Reads the disk once (20 ms)."""
    groups = tomllib.loads(RULES_PATH.read_text(encoding="utf-8"))
    return {name: tuple(map(_rule, entries)) for name, entries in groups.items()}


def _rule(entry: Mapping[str, Any]) -> Rule:
    category, origin = entry.get("category"), entry.get("origin")
    return Rule(
        id=entry["id"],
        where=Field(entry["where"]),
        pattern="".join(entry["pattern"]),
        unless="".join(entry.get("unless", "")),
        category=None if category is None else Category(category),
        origin=None if origin is None else Origin(origin),
        example=entry["example"],
        why=entry["why"],
        confidence=entry["confidence"],
    )


MAX_RULES = 500
MAX_PATTERN_CHARS = 300
MAX_FILE_BYTES = 1_000_000
_KEYS = ("match", "contains", "category", "origin", "note")
_NESTED_REPEAT = re.compile(r"\([^()]*[+*][^()]*\)\s*(?:[+*]|\{\d)")

_T = TypeVar("_T", bound=StrEnum)


def load_user_rules(path: Path) -> tuple[Rule, ...]:
    """Return the rules of a TOML file in order; an absent file has none. Reads the disk.

    Each `[[rule]]` has `match` (a Python regular expression searched in the full name) or
    `contains` (plain text), `category` or `origin` or both, and an optional `note`. UserError names
    the file, the rule's number, the field and what is allowed.
    """
    if not path.exists():
        return ()
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UserError(f"{path.name}: larger than {MAX_FILE_BYTES} bytes; keep rules few")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UserError(f"{path.name}: not valid TOML: {exc}") from None
    unknown = sorted(set(data) - {"rule"})
    entries = data.get("rule", [])
    if unknown or not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        what = f"unknown key {unknown[0]!r}" if unknown else "`rule` is not a list of tables"
        raise UserError(f"{path.name}: {what}; write each rule under [[rule]]")
    if len(entries) > MAX_RULES:
        raise UserError(f"{path.name}: {len(entries)} rules are more than {MAX_RULES}")
    return tuple(_read(f"{path.name}: rule {i}", i, e) for i, e in enumerate(entries, start=1))


def _read(where: str, number: int, entry: Mapping[str, Any]) -> Rule:
    for key, value in entry.items():
        if key not in _KEYS:
            raise UserError(f"{where}: {key!r} is not one of {', '.join(_KEYS)}")
        if not isinstance(value, str) or not value:
            raise UserError(f"{where}: {key} must be a text that is not empty")
    if ("match" in entry) == ("contains" in entry):
        raise UserError(f"{where}: give match (a regular expression) or contains, one of the two")
    if "category" not in entry and "origin" not in entry:
        raise UserError(f"{where}: give category, origin or both")
    return Rule(
        id=f"user.{number}",
        where=Field.TEXT,
        pattern=_pattern(where, entry),
        category=_member(where, "category", Category, entry.get("category")),
        origin=_member(where, "origin", Origin, entry.get("origin")),
        example="",
        why=entry.get("note", "the user's own rule"),
        confidence=1.0,
    )


def _pattern(where: str, entry: Mapping[str, Any]) -> str:
    if "contains" in entry:
        return re.escape(str(entry["contains"]))
    pattern: str = entry["match"]
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UserError(f"{where}: match is longer than {MAX_PATTERN_CHARS} characters")
    if _NESTED_REPEAT.search(pattern):
        raise UserError(
            f"{where}: match repeats a group that repeats inside, which can take forever; "
            "write it without the nested + or *"
        )
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        raise UserError(f"{where}: match is not a regular expression: {exc}") from None
    return pattern


def _member(where: str, field: str, kind: type[_T], value: str | None) -> _T | None:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(kind)
        raise UserError(f"{where}: {field} {value!r} is not one of {allowed}") from None

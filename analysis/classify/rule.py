"""A rule: a pattern, the text of a name it looks in, and what it means. The first match decides."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from analysis.classify.classes import Category, Origin
from analysis.classify.names import NameView

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

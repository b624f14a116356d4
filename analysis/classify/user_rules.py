"""Read the user's own rules (`rules.toml` in the data directory)."""

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from analysis.classify.classes import Category, Origin
from analysis.classify.rule import Field, Rule
from core.errors import UserError

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

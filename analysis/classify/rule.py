"""A rule: a pattern, the text of a name it looks in, and what it means. The first match decides.

`classify` asks the user's rules, then the library's own spellings, then plain words.

The built-in rules are `rules.toml` of this folder; a user's own are `rules.toml` of the data
directory.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from analysis.classify.classes import Category, KernelClass, Origin
from analysis.classify.names import NameView, short_name, view
from captures.contents import open_plain
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


def compile_rules() -> None:
    """Compile every built-in rule: processes that are forked afterwards need not do it again."""
    for rule in (rule for group in built_in_rules().values() for rule in group):
        compiled(rule.pattern)
        compiled(rule.unless)


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
    with open_plain(path, follows_links=True) as file:
        text = file.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise UserError(f"{path.name}: larger than {MAX_FILE_BYTES} bytes; keep rules few")
    try:
        data = tomllib.loads(text.decode("utf-8").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise UserError(f"{path.name}: not valid TOML: {exc}") from None
    unknown = sorted(set(data) - {"rule"})
    entries = data.get("rule", [])
    if unknown or not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        fault = f"unknown key {unknown[0]!r}" if unknown else "`rule` is not a list of tables"
        raise UserError(f"{path.name}: {fault}; write each rule under [[rule]]")
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


_CPU_OPERATOR = re.compile(r"^(?:aten|mkldnn|mkl|quantized|onednn|prims)::")
_GENERATED = re.compile(r"^triton_(?:poi|per|red|tem|for|spl|mix|unk|mm|bmm|convolution|flex)_?")
_ATEN_HEAD = re.compile(r"^(?:at|c10|caffe2|at_cuda\w*)::(?!cuda_detail)")
_FAR_TEXT = ((Field.HEAD_WORDS, 0.9), (Field.INNER_WORDS, 0.6))
_WRAPPERS = frozenset({"kentry", "device_kernel", "Kernel", "Kernel2", "EigenMetaKernel"})
"""Entry points whose template argument, not whose name or namespace, says what runs."""


@lru_cache(maxsize=65_536)
def classify(name: str, *, user_rules: tuple[Rule, ...] = ()) -> KernelClass:
    """Return the class of one kernel or CPU operator name. Pure and cached; never fails.

    A user rule that gives only a category (or origin) leaves the other to the built-in rules.
    Confidence: 1 for a user rule, 0.95 for a library's own spelling, less for plain words, 0 when
    no rule knows the category.
    """
    seen = view(name)
    by_user = first_match(user_rules, seen)
    category_rule, scale = _category_rule(seen)
    if by_user is not None and by_user.category is not None:
        category_rule, scale = by_user, 1.0
    origin_rule = first_match(built_in_rules()["origin"], seen)
    if by_user is not None and by_user.origin is not None:
        origin_rule = by_user
    return _combine(name, category_rule, scale, origin_rule)


def _combine(
    name: str, category_rule: Rule | None, scale: float, origin_rule: Rule | None
) -> KernelClass:
    category = Category.UNKNOWN
    confidence = 0.0
    if category_rule is not None and category_rule.category is not None:
        category = category_rule.category
        confidence = category_rule.confidence * scale
    origin = Origin.UNKNOWN
    origin_id = "none"
    if origin_rule is not None and origin_rule.origin is not None:
        origin, origin_id = origin_rule.origin, origin_rule.id
        confidence = min(confidence, origin_rule.confidence)
    elif category_rule is not None:
        origin, origin_id = Origin.USER, "user.plain_name"
        confidence = min(confidence, 0.5)
    return KernelClass(
        category=category,
        origin=origin,
        confidence=round(confidence, 2),
        rule=f"{category_rule.id if category_rule else 'none'} / {origin_id}",
        short_name=short_name(name),
    )


def _category_rule(seen: NameView) -> tuple[Rule | None, float]:
    """Return the deciding category rule and the factor on its confidence."""
    rules = built_in_rules()
    if _CPU_OPERATOR.match(seen.head):
        return first_match(rules["cpu"], seen), 1.0
    order = ["compiled"]
    if _GENERATED.match(seen.base):
        order.append("inductor")
    if _ATEN_HEAD.match(seen.head) or _is_aten_without_namespace(seen):
        order.append("aten")
    for group in (*order, "xla", "library", "words"):
        rule = first_match(rules[group], seen)
        if rule is not None:
            return rule, 1.0
    return _from_far_text(seen)


def _is_aten_without_namespace(seen: NameView) -> bool:
    """Say whether the base is one of PyTorch's kernels: some tools drop the namespace."""
    rule = next(r for r in built_in_rules()["origin"] if r.id == "aten.short")
    return rule.matches(seen)


def _from_far_text(seen: NameView) -> tuple[Rule | None, float]:
    """Look for words in namespaces, then in a C++ signature's order, then in template arguments."""
    rules = built_in_rules()
    order = _FAR_TEXT[::-1] if seen.base in _WRAPPERS else _FAR_TEXT
    for where, scale in order:
        rule = first_match(rules["words"], seen, instead=where)
        if rule is not None:
            return rule, scale
        signature = first_match(rules["signature"], seen)
        if signature is not None:
            return signature, 1.0
    return None, 1.0

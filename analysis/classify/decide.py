"""Decide a name's class: the user's rules, then the library's own, then plain words."""

import re
from functools import lru_cache

from analysis.classify.classes import Category, KernelClass, Origin
from analysis.classify.names import NameView, short_name, view
from analysis.classify.rule import Field, Rule, built_in_rules, first_match

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

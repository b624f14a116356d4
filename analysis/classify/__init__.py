"""Kernel classes from kernel names: ordered rules, each with an example and a reason."""

from analysis.classify.classes import OPAQUE, Category, KernelClass, Origin, fractions, is_gemm_like
from analysis.classify.labels import cut_middle, distinct_labels, label
from analysis.classify.names import short_name
from analysis.classify.rule import Rule, classify, load_user_rules

categories = tuple(Category)
origins = tuple(Origin)

__all__ = [
    "OPAQUE",
    "Category",
    "KernelClass",
    "Origin",
    "Rule",
    "categories",
    "classify",
    "cut_middle",
    "distinct_labels",
    "fractions",
    "is_gemm_like",
    "label",
    "load_user_rules",
    "origins",
    "short_name",
]

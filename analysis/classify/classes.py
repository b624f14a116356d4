"""The kernel categories and origins, what one classification says, and each class's share."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd


class Category(StrEnum):
    """What a kernel computes."""

    GEMM = "gemm"
    GEMV = "gemv"
    ATTENTION = "attention"
    CONV = "conv"
    SOFTMAX = "softmax"
    NORM = "norm"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    EMBEDDING = "embedding"
    INDEX = "index"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    COPY = "copy"
    FILL = "fill"
    RANDOM = "random"
    COLLECTIVE = "collective"
    MOE = "moe"
    OTHER = "other"
    UNKNOWN = "unknown"


class Origin(StrEnum):
    """Whose code a kernel is."""

    CUBLAS = "cublas"
    CUTLASS = "cutlass"
    CUDNN = "cudnn"
    ATEN = "aten"
    FLASH_ATTENTION = "flash_attention"
    INDUCTOR = "inductor"
    TRITON = "triton"
    NCCL = "nccl"
    CUB = "cub"
    VLLM = "vllm"
    TENSORRT_LLM = "tensorrt_llm"
    APEX = "apex"
    USER = "user"
    UNKNOWN = "unknown"


OPAQUE = "opaque"
"""Label of whole CUDA graph launches in category totals: time whose kernels were not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelClass:
    """The class of one kernel name and the rules that gave it."""

    category: Category
    origin: Origin
    confidence: float
    "0 (no rule) to 1: the smaller of the category rule's and the origin rule's confidence."
    rule: str
    "`CATEGORY_RULE / ORIGIN_RULE`; `none` where no rule matched."
    short_name: str


def is_gemm_like(category: str) -> bool:
    """Say whether the category counts in the GEMM fraction (gemm, gemv; split-K included)."""
    return category in (Category.GEMM, Category.GEMV)


def fractions(kernels: pd.DataFrame) -> Mapping[str, Any]:
    """Return the GPU-time shares of a frame with `category`, `total_ns` and `is_opaque`.

    With T = sum of total_ns over all rows, opaque CUDA graph launches included (ns):

        gemm_frac          = sum of total_ns where category is gemm or gemv / T        (0 to 1)
        attention_frac     = sum of total_ns where category is attention / T           (0 to 1)
        unclassified_frac  = sum of total_ns where no rule knew the name, or the row is opaque / T
        category_total_ns  = {category: ns}, opaque rows under `opaque` whatever their name

    Without any time (T = 0) only an empty `category_total_ns` is returned: a share is unknown.
    Where all time is opaque, gemm_frac and attention_frac are left out: no kernel was recorded.
    """
    if kernels.empty:
        return {"category_total_ns": {}}
    label = kernels["category"].astype(object).where(~kernels["is_opaque"].astype(bool), OPAQUE)
    totals = kernels["total_ns"].groupby(label).sum().sort_values(ascending=False)
    by_category = {str(name): int(ns) for name, ns in totals.items()}
    total_ns = sum(by_category.values())
    if total_ns <= 0:
        return {"category_total_ns": {}}
    opaque_ns = by_category.get(OPAQUE, 0)
    shares: dict[str, Any] = {
        "unclassified_frac": (by_category.get(Category.UNKNOWN, 0) + opaque_ns) / total_ns,
        "category_total_ns": by_category,
    }
    if opaque_ns < total_ns:
        gemm_ns = sum(ns for name, ns in by_category.items() if is_gemm_like(name))
        shares["gemm_frac"] = gemm_ns / total_ns
        shares["attention_frac"] = by_category.get(Category.ATTENTION, 0) / total_ns
    return shares

"""The kernel categories and origins, and what one classification says."""

from dataclasses import dataclass
from enum import StrEnum


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

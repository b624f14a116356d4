"""Sizes of models by name: what the workloads' presets set, and by which studies name a run."""

from collections.abc import Mapping

DTYPE_BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one number."""
Sizes = Mapping[str, Mapping[str, int]]
_LLAMA: Sizes = {
    "llama-7b-layer": {
        "layers": 1, "d_model": 4096, "heads": 32, "kv_heads": 32, "ff": 11008, "vocab": 0,
    },
    "llama-7b": {
        "layers": 32, "d_model": 4096, "heads": 32, "kv_heads": 32, "ff": 11008, "vocab": 32000,
    },
    "llama-3-8b": {
        "layers": 32, "d_model": 4096, "heads": 32, "kv_heads": 8, "ff": 14336, "vocab": 128256,
    },
}  # fmt: skip
"""Dimensions from the models' published configurations; `llama-7b-layer` is one layer of 7B."""
_WITH_HEAD = {name: {**sizes, "vocab": sizes["vocab"] or 32_000} for name, sizes in _LLAMA.items()}
"""The same, all with embedding and head: generation needs both."""
MODEL_SIZES: Mapping[str, Sizes] = {
    "transformer": {
        "small": {"d_model": 768, "layers": 12, "heads": 12, "ff": 3072},
        "medium": {"d_model": 1024, "layers": 24, "heads": 16, "ff": 4096},
        "large": {"d_model": 1280, "layers": 36, "heads": 20, "ff": 5120},
        "xl": {"d_model": 1600, "layers": 48, "heads": 25, "ff": 6400},
        "2.7B": {"d_model": 2560, "layers": 32, "heads": 32, "ff": 10240},
    },
    "decode": _LLAMA,
    "prefill": _LLAMA,
    "generate": _WITH_HEAD,
}
"""Workload -> name of a size -> its params."""

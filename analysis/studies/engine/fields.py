"""The fields by which runs and published figures are laid out, as texts."""

from collections.abc import Mapping
from typing import Any

from analysis.published import GPU_NOT_NAMED
from analysis.runview import RunView

MODEL_SIZES: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "transformer": {
        "small": {"d_model": 768, "layers": 12, "heads": 12, "ff": 3072},
        "medium": {"d_model": 1024, "layers": 24, "heads": 16, "ff": 4096},
        "large": {"d_model": 1280, "layers": 36, "heads": 20, "ff": 5120},
        "xl": {"d_model": 1600, "layers": 48, "heads": 25, "ff": 6400},
        "2.7B": {"d_model": 2560, "layers": 32, "heads": 32, "ff": 10240},
    },
    "decode": {
        "llama-7b-layer": {"d_model": 4096, "layers": 1, "heads": 32, "ff": 11008, "vocab": 0},
        "llama-7b": {"d_model": 4096, "layers": 32, "heads": 32, "ff": 11008, "vocab": 32000},
    },
}
"""Names of sizes, as the workloads' presets define them (a test holds the two together)."""
ALIASES = {
    "seq_len": ("seq_len", "context", "sequence"),
    "model": ("model", "implementation", "impl"),
    "compile": ("compile", "compile_mode"),
}
ORDER: Mapping[str, tuple[str, ...]] = {
    "model": ("small", "medium", "large", "xl", "2.7B", "naive", "sdpa", "compiled", "triton"),
    "compile": ("none", "default", "reduce-overhead", "max-autotune"),
    "dtype": ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"),
    "mode": ("forward", "forward_backward", "train_step"),
    "phase": ("forward", "backward", "optimizer"),
}


def fields_of(view: RunView) -> dict[str, str]:
    """Return every field of a run: gpu, workload, model and all params, as texts."""
    params = view.run.params
    found = {name: as_text(value) for name, value in params.items() if value is not None}
    for name, keys in ALIASES.items():
        value = next((params[k] for k in keys if params.get(k) is not None), None)
        if value is not None:
            found[name] = as_text(value)
    if model := _model_name(view.run.workload or "", params):
        found["model"] = model
    if (head_dim := params.get("head_dim")) is not None:
        found["d_model"] = as_text(head_dim)
    found["gpu"] = view.run.gpu_model or GPU_NOT_NAMED
    found["workload"] = view.run.workload or "imported"
    return found


def job_for(
    view: RunView, have: Mapping[str, str], want: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the run's job with the wanted fields changed; None where no param says a field."""
    params, gpu = dict(view.run.params), view.run.gpu_model
    for name, value in want.items():
        if have.get(name) == value:
            continue
        if name == "gpu":
            gpu = value
        elif sizes := MODEL_SIZES.get(view.run.workload or "", {}).get(value):
            params |= sizes
        else:
            keys = (name, *ALIASES.get(name, ()), *(("head_dim",) if name == "d_model" else ()))
            key = next((k for k in reversed(keys) if k in params), None)
            if key is None:
                return None
            params[key] = like(params[key], value)
    return {
        "workload": view.run.workload,
        "params": params,
        "gpu": gpu,
        "profilers": list(view.run.profilers),
        "repeats": view.run.repeats,
    }


def like(example: Any, text: str) -> Any:
    """Return the text as a value of the example's type."""
    if isinstance(example, bool):
        return text == "true"
    if isinstance(example, int) and text.lstrip("-").isdigit():
        return int(text)
    return float(text) if isinstance(example, float) else text


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def sort_key(name: str, text: str) -> tuple[int, float, str]:
    """Order texts of a field: the field's own order, then numbers, then words."""
    known = ORDER.get(name, ())
    if text in known:
        return (0, known.index(text), "")
    try:
        return (1, float(text), "")
    except ValueError:
        return (2, 0.0, text)


def _model_name(workload: str, params: Mapping[str, Any]) -> str | None:
    """Return the name of known sizes, or one made from what defines the problem."""
    for name, sizes in MODEL_SIZES.get(workload, {}).items():
        if all(params.get(k) == v for k, v in sizes.items()):
            return name
    if workload in MODEL_SIZES and {"layers", "d_model"} <= set(params):
        return f"{params['layers']} layers x {params['d_model']}"
    if params.get("experts") is not None:
        return f"{params['experts']}-experts-top{params.get('top_k', '?')}"
    tiles = [params.get(k) for k in ("tile_m", "tile_n")]
    if None not in tiles:
        return f"tile-{tiles[0]}x{tiles[1]}"
    return None

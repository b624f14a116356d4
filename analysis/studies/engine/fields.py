"""The fields by which runs and published figures are laid out, as texts."""

import re
from collections.abc import Mapping, Set
from typing import Any

from analysis.published import GPU_NOT_NAMED
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from core.model_sizes import MODEL_SIZES
from core.numbers import decimal, value_text
from core.spec import LATER_PARAMS

SAME_AS: Mapping[str, Mapping[str, str]] = {
    "decode": {"seq_len": "context"},
    "generate": {"seq_len": "prompt"},
    "attention": {"model": "implementation", "d_model": "head_dim"},
    "moe_routing": {"mode": "implementation", "batch": "tokens"},
}
"""Field -> the param of a workload that it is, where the two have different names."""
MOE_MODES = {"route_sort": "route_regroup"}
"""Regrouping as publications name it: the plain way, by a sort."""
ATTENTION_OF_COMPILE = {"naive": {"default": "compiled"}}
"""Published implementation -> compile mode -> the implementation that this is."""
NOT_FIELDS = frozenset(
    {"preset", "iterations", "warmup", "seed", "timeout_s", "memory_cap_gib"}  # the cap: in `gpu`
)
OF_RANKS = frozenset({"gpus", "scaling", "profiled_ranks"})
"""Params covered by the field `ranks`, and one that changes no measurement."""
OF_MODEL = frozenset(MODEL_SIZES["decode"]["llama-7b"]) | {
    "implementation", "backend", "tile_m", "tile_n", "experts", "top_k"
}  # fmt: skip
"""Params implied by a model's name."""
CAP = re.compile(r"(.+) capped at (\d+(?:\.\d+)?) GiB")
TILE = re.compile(r"^tile-(\d{1,6})x(\d{1,6})$")
ORDER: Mapping[str, tuple[str, ...]] = {
    "model": (
        "small",
        "medium",
        "large",
        "xl",
        "2.7B",
        "naive",
        "sdpa",
        "compiled",
        "triton",
        "cublas",
    ),
    "compile": ("none", "default", "reduce-overhead", "max-autotune"),
    "dtype": ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"),
    "mode": ("forward", "forward_backward", "train_step"),
    "phase": ("forward", "backward", "optimizer"),
}


def fields_of(view: RunView) -> dict[str, str]:
    """Return every field of a run, as texts, not to be changed: gpu, workload, model, all params.

    An import that states nothing is identified by name: it repeats no other measurement.
    """
    return view.once(("fields",), lambda: _fields_of(view))


def _fields_of(view: RunView) -> dict[str, str]:
    params, workload = view.run.params, view.run.workload or ""
    known = {k: v for k, v in params.items() if v is not None and k not in NOT_FIELDS}
    known = {k: v for k, v in known.items() if k not in OF_RANKS and LATER_PARAMS.get(k) != v}
    fields = {name: value_text(value) for name, value in known.items()}
    for name, param in SAME_AS.get(workload, {}).items():
        if param in known:
            fields[name] = value_text(known[param])
    if workload == "moe_routing":
        fields["mode"] = MOE_MODES.get(fields.get("mode", ""), fields.get("mode", ""))
    if model := _model_name(workload, params):
        fields["model"] = model
    if "gpus" in params and not _is_alone(params):
        fields["ranks"] = _ranks(params)
    device = view.run.gpu_model or ("cpu" if is_cpu_run(view) else GPU_NOT_NAMED)
    fields["gpu"] = _capped(device, params.get("memory_cap_gib"))
    fields["workload"] = workload or ("imported" if known else f"imported: {view.run.name}")
    return fields


def _is_alone(params: Mapping[str, Any]) -> bool:
    """Say whether a run is what it was before it could be shared: one rank, no way to share."""
    return all(
        params.get(name, LATER_PARAMS[name]) == LATER_PARAMS[name] for name in ("gpus", "parallel")
    )


def _ranks(params: Mapping[str, Any]) -> str:
    """Return how many ranks there are, and how they share: `2 weak` with a batch for each."""
    num_ranks = int(params["gpus"])
    scaling = f" {params['scaling']}" if num_ranks > 1 and params.get("scaling") else ""
    return f"{num_ranks}{scaling}"


def with_one_name(fields: Mapping[str, str]) -> dict[str, str]:
    """Return a publication's fields by the names that our runs have for the same code.

    Compiled naive attention is `compiled` here; who wrote `naive` under `default` means that too. A
    workload of one mode has no mode.
    """
    renamed = dict(fields)
    if renamed.get("workload") == "attention" and renamed.get("model") in ATTENTION_OF_COMPILE:
        compiled = renamed.pop("compile", "")
        renamed["model"] = ATTENTION_OF_COMPILE[renamed["model"]].get(compiled, renamed["model"])
    if renamed.get("mode") == renamed.get("workload"):
        renamed.pop("mode", None)
    return renamed


def implied_by(used: Set[str]) -> set[str]:
    """Return the fields whose value follows from those that are used."""
    same = [pair for names in SAME_AS.values() for pair in names.items()]
    implied = {param for name, param in same if name in used}
    implied |= {name for name, param in same if param in used}
    return implied | OF_MODEL if "model" in used else implied


def job_for(
    view: RunView, have: Mapping[str, str], want: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the run's job with the wanted fields changed; None where no param says a field."""
    params, gpu = dict(view.run.params), view.run.gpu_model
    for name, value in want.items():
        if have.get(name) == value:
            continue
        if name == "gpu":
            gpu, cap_gib = _without_cap(value)
            if cap_gib or params.get("memory_cap_gib"):
                params["memory_cap_gib"] = cap_gib
            continue
        changes = _changes(view.run.workload or "", name, value, params)
        if changes is None:
            return None
        params |= changes
    params.pop("preset", None)
    return {
        "workload": view.run.workload,
        "params": params,
        "gpu": gpu,
        "profilers": list(view.run.profilers),
        "repeats": view.run.repeats,
    }


def _capped(gpu: str, cap_gib: float | None) -> str:
    """Name the GPU with its cap: a run with a memory cap simulates a smaller GPU."""
    return f"{gpu} capped at {decimal(cap_gib, 6)} GiB" if cap_gib else gpu


def _without_cap(gpu: str) -> tuple[str, float]:
    match = CAP.fullmatch(gpu)
    return (match[1], float(match[2])) if match else (gpu, 0.0)


def _changes(
    workload: str, name: str, value: str, params: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the params that give a field its value; None where there are none."""
    if name == "model" and (sizes := MODEL_SIZES.get(workload, {}).get(value)):
        return dict(sizes)
    if name == "model" and (tile := TILE.match(value)):
        rows, columns = int(tile[1]), int(tile[2])
        return {"implementation": "triton", "tile_m": rows, "tile_n": columns}
    param = SAME_AS.get(workload, {}).get(name, name)
    if workload == "moe_routing" and name == "mode":
        value = next((own for own, shown in MOE_MODES.items() if shown == value), value)
    if param not in params or name in NOT_FIELDS:
        return None
    return {param: like(params[param], value)}


def like(example: Any, text: str) -> Any:
    """Return the text as a value of the example's type."""
    if isinstance(example, bool):
        return text == "true"
    if isinstance(example, int) and text.lstrip("-").isdigit():
        return int(text)
    return float(text) if isinstance(example, float) else text


BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def sort_key(name: str, text: str) -> tuple[int, float, str]:
    """Order texts of a field: the field's own order, then numbers, then words."""
    known = ORDER.get(name, ())
    if text in known:
        return (0, known.index(text), "")
    number, _, rest = text.partition(" ") if name in ("ranks", "size") else (text, "", "")
    try:
        if name == "size":
            return (1, float(number) * 1024 ** BINARY_UNITS.index(rest), "")
        return (1, float(number), rest)
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
    code = params.get("implementation")
    tiles = [params.get(k) for k in ("tile_m", "tile_n")]
    if None not in tiles:
        return f"tile-{tiles[0]}x{tiles[1]}" if code in (None, "triton") else str(code)
    backend = params.get("backend")
    if code == "sdpa" and backend not in (None, "auto"):
        return f"sdpa {backend}"
    return None

"""Which configuration fields differ, and what that means for a ratio."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.compare.metrics import Metric
from analysis.compare.records import Difference, Effect
from analysis.runview import RunView
from core.numbers import listed_texts, value_text
from core.plain_text import some_of
from core.spec import LATER_PARAMS, NO_EFFECT

QUESTIONS = frozenset(
    [
        "compile",
        "compile_mode",
        "implementation",
        "impl",
        "attention",
        "attention_impl",
        "command",
        "variant",
        "weights",
        "tile",
        "kernel",
        "kv_cache",
        "cuda_graph",
        "cuda_graphs",
        "fused_optimizer",
        "gpu",
        "ranks",
        "settings",
        "straggler",
    ]
)
"""Fields that people vary on purpose. One of them may differ; two at once explain nothing."""
VARIABLE_OF = {
    "argv": "command",
    "cwd": "command",
    "backend": "implementation",
    **dict.fromkeys(("gpus", "parallel", "scaling"), "ranks"),
    **dict.fromkeys(("straggler_rank", "straggler_ms"), "straggler"),
    **dict.fromkeys(("tile_m", "tile_n", "tile_k", "split_k", "warps", "stages"), "tile"),
}
"""Params that are parts of one variable: a tile's sides differ together."""
BREAKING_SETTING = re.compile(r"clock|power_limit|persistence|mig|throttl", re.I)
IDENTITY = re.compile(
    r"session|utc|timestamp|uuid|serial|host|user$|pid$|^devices$|_at$|_ns$|_id$"
    r"|cwd|path|folder|(^|[_.])dir(ectory)?$|^distributed\.rank$",
    re.I,
)
"""Environment entries that name one execution or place, not a setting: never a cause."""
GRAPH_SETTING = re.compile(r"cuda_graph_trace", re.I)
TOOL_SETTING = re.compile(r"^(nsys|ncu|trace|profiler|tool)", re.I)
MAX_NAMED = 5
MIN_GROUP = 3
"""So many fields of one prefix are named together."""


def find_differences(
    a: Sequence[RunView], b: Sequence[RunView], metric: Metric
) -> tuple[Difference, ...]:
    """Return the fields that differ between (or within) the sides, the most important first.

    Sizes, dtype, mode, workload and clock limits break a ratio; so do tool settings for a metric
    that was measured under the tool. A field known on one side only is `unknown`.
    """
    values_a, values_b = _values(a, metric), _values(b, metric)
    for name, default in LATER_PARAMS.items():  # a run from before has it at this value
        for values, other in ((values_a, values_b), (values_b, values_a)):
            if name in values:
                other.setdefault(name, {value_text(default)})
    differences = []
    gpu_differs = values_a.get("gpu") != values_b.get("gpu")
    have_graphs = all(any(map(_may_have_graphs, side)) for side in (a, b))
    for name in sorted({*values_a, *values_b}):
        in_a, in_b = values_a.get(name, set()), values_b.get(name, set())
        if in_a == in_b and len(in_a) <= 1:
            continue
        mixed = len(in_a) > 1 or len(in_b) > 1
        effect = _effect(name, mixed=mixed, gpu_differs=gpu_differs, metric=metric)
        if GRAPH_SETTING.search(name):
            effect = "breaks" if metric.is_profiled and have_graphs else "noted"
        if not (in_a and in_b) and effect != "intended":
            effect = "unknown"
        differences.append(Difference(field=name, a=_text(in_a), b=_text(in_b), effect=effect))
    rank = {"breaks": 0, "intended": 1, "unknown": 2, "noted": 3}
    return tuple(
        sorted(
            _one_question(differences),
            key=lambda d: (rank[d.effect], d.field.startswith("environment."), d.field),
        )
    )


def _may_have_graphs(view: RunView) -> bool:
    return bool(view.summary.get("num_graph_launches") != 0)


def _one_question(differences: Sequence[Difference]) -> list[Difference]:
    """Return the fields with those questions as `unknown` that one side does not answer.

    Files without params lack them all, which makes none of them the variable; a single one that
    one side lacks (`variant` of a new build) is the variable.
    """
    questions = [d for d in differences if d.effect == "intended"]
    if len(questions) < 2:
        return list(differences)
    return [
        replace(d, effect="unknown") if d in questions and None in (d.a, d.b) else d
        for d in differences
    ]


def intended_variable(differences: Sequence[Difference]) -> Difference | None:
    """Return the one variable that the comparison is about; None if none or several."""
    questions = [d for d in differences if d.effect == "intended"]
    names = {_variable(d.field) for d in questions}
    if len(names) != 1:
        return None
    if len(questions) == 1:
        return questions[0]
    a, b = (", ".join(f"{d.field} {getattr(d, side)}" for d in questions) for side in ("a", "b"))
    return Difference(field=names.pop(), a=a, b=b, effect="intended")


def is_comparable(differences: Sequence[Difference]) -> bool:
    """Say whether the ratio is meaningful despite the fields that differ."""
    variables = {_variable(d.field) for d in differences if d.effect == "intended"}
    return len(variables) <= 1 and not any(d.effect == "breaks" for d in differences)


def _variable(name: str) -> str:
    return VARIABLE_OF.get(name, name)


def make_banner(differences: Sequence[Difference]) -> str | None:
    """Return one sentence that names what differs before any ratio is read; None if nothing."""
    if not differences:
        return None
    breaking = [d for d in differences if d.effect == "breaks"]
    questions = [d for d in differences if d.effect == "intended"]
    parts = []
    if breaking:
        parts.append(f"Not comparable: {_list(breaking)}; the ratio is for information only.")
    if len({_variable(d.field) for d in questions}) > 1:
        parts.append(f"Not comparable: several variables differ at once ({_list(questions)}).")
    elif questions:
        parts.append(f"The variable is {_list(questions)}.")
    if unknown := [d for d in differences if d.effect == "unknown"]:
        parts.append(f"Known on one side only: {_names(unknown)}.")
    if noted := [d for d in differences if d.effect == "noted"]:
        parts.append(f"Also different: {_list(noted)}.")
    return " ".join(parts)


def _list(differences: Sequence[Difference]) -> str:
    return ", ".join(d.change for d in differences)


def _names(differences: Sequence[Difference]) -> str:
    """Return the fields, the first few by name: what one side says is in the table of fields."""
    return some_of(list(group_fields(differences)), MAX_NAMED)


def group_fields(differences: Sequence[Difference]) -> dict[str, list[Difference]]:
    """Return name -> differences; several of one prefix as `environment.allocator (9 fields)`."""
    prefixes = [d.field.rpartition(".")[0] for d in differences]
    groups: dict[str, list[Difference]] = {}
    for difference, prefix in zip(differences, prefixes, strict=True):
        count = prefixes.count(prefix)
        is_many = prefix != "" and count >= MIN_GROUP
        name = f"{prefix} ({count} fields)" if is_many else difference.field
        groups.setdefault(name, []).append(difference)
    return groups


def _effect(name: str, *, mixed: bool, gpu_differs: bool, metric: Metric) -> Effect:
    if name in NO_EFFECT:
        return "noted"
    if name.startswith("environment."):
        setting = name.removeprefix("environment.")
        if BREAKING_SETTING.search(setting):
            return "noted" if gpu_differs else "breaks"
        if TOOL_SETTING.search(setting):
            return "breaks" if metric.is_profiled else "noted"
        return "noted"
    if name == "tool":
        return "breaks" if metric.is_profiled else "noted"
    if _variable(name) in QUESTIONS and not mixed:
        return "intended"
    return "breaks"


def _values(views: Sequence[RunView], metric: Metric) -> dict[str, set[str]]:
    """Return field -> the distinct values on one side, params under their own names."""
    values: dict[str, set[str]] = {}
    for view in views:
        for name, value in _fields(view, metric).items():
            if value is not None and value != "":
                values.setdefault(name, set()).add(_param_text(name, value))
    return values


def _param_text(name: str, value: Any) -> str:
    """Return a value as people write it: a program's arguments as a shell takes them."""
    words = listed_texts(value) if name == "argv" else []
    return shlex.join(words) if words else value_text(value)


def _fields(view: RunView, metric: Metric) -> Mapping[str, Any]:
    run = view.run
    fields: dict[str, Any] = {"workload": run.workload, "gpu": run.gpu_model}
    fields |= run.params
    settings = {k: v for k, v in run.environment.items() if not IDENTITY.search(k)}
    fields |= {f"environment.{k}": v for k, v in settings.items()}
    if metric.is_profiled and view.primary_pass:
        fields["tool"] = view.primary_pass
    if metric.name == "idle_frac":
        fields["idle_source"] = view.summary.get("idle_source")
    return fields


def _text(values: set[str]) -> str | None:
    return " | ".join(sorted(values)) if values else None

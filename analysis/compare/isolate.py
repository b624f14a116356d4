"""Two runs that differ in several fields: the pair of runs that would isolate each field.

Between A and B a change in one field hides in those of the others. A run that is A but for one
field of B's, or B but for one of A's, holds all others still.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.fields import VARIABLE_OF
from analysis.compare.records import Difference
from analysis.runview import RunRow
from core.spec import LATER_PARAMS, NO_EFFECT

_FEWEST = 2
_SIZES = frozenset({"d_model", "ff", "heads", "kv_heads", "layers", "vocab", "head_dim"})
MODEL = "model"
"""The variable of a model's sizes where several of them differ: a preset sets them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolated:
    """One variable, and the two runs that differ in it alone."""

    variable: str
    a: str
    b: str
    "Its values, `field value` where the variable has several fields."
    run_a: str | None
    run_b: str | None
    "Runs of the pair; one of them is the comparison's own, the other None where nobody ran it."
    base: RunRow
    "The comparison's own run of the pair."
    missing: Mapping[str, Any]
    "Workload, params and gpu of the other run."


def isolating_pairs(
    a: RunRow, b: RunRow, differs: Sequence[Difference], known: Sequence[RunRow]
) -> tuple[Isolated, ...]:
    """Return a pair for each variable in which `a` and `b` differ; () where fewer than two do.

    Only what a job says counts: its workload, its parameters, its GPU. `known` are the finished
    runs that a pair may be made of, the newest first.
    """
    variables: dict[str, list[str]] = {}
    for difference in differs:
        field = difference.field
        if difference.effect in ("intended", "breaks") and _is_of_job(field, a, b):
            variables.setdefault(VARIABLE_OF.get(field, field), []).append(field)
    sizes = [name for name in variables if name in _SIZES]
    if len(sizes) > 1:
        fields = [f for name in sizes for f in variables.pop(name)]
        variables[MODEL] = [*fields, "preset"]
    if len(variables) < _FEWEST or "workload" in variables:
        return ()
    return tuple(_isolate(name, fields, a, b, known) for name, fields in variables.items())


def _is_of_job(field: str, a: RunRow, b: RunRow) -> bool:
    return field in ("gpu", "workload") or field in a.params or field in b.params


def _isolate(
    variable: str, fields: Sequence[str], a: RunRow, b: RunRow, known: Sequence[RunRow]
) -> Isolated:
    texts = [_texts(run, fields) for run in (a, b)]
    wanted = [_changed(a, b, fields), _changed(b, a, fields)]
    for place, (base, job) in enumerate(zip((a, b), wanted, strict=True)):
        found = next((r.id for r in known if _key(r) == _job_key(job)), None)
        if found is not None:
            pair = (base.id, found) if place == 0 else (found, base.id)
            return Isolated(
                variable=variable, a=texts[0], b=texts[1], run_a=pair[0], run_b=pair[1],
                base=base, missing={},
            )  # fmt: skip
    return Isolated(
        variable=variable, a=texts[0], b=texts[1], run_a=a.id, run_b=None, base=a,
        missing=wanted[0],
    )  # fmt: skip


def _changed(base: RunRow, other: RunRow, fields: Sequence[str]) -> dict[str, Any]:
    """Return the job of `base` with these fields as `other` has them."""
    params, theirs = dict(base.params), dict(other.params)
    for field in fields:
        if field == "gpu":
            continue
        if field in theirs:
            params[field] = theirs[field]
        else:
            params.pop(field, None)
    gpu = other.gpu_model if "gpu" in fields else base.gpu_model
    return {"workload": base.workload, "params": params, "gpu": gpu}


def _texts(run: RunRow, fields: Sequence[str]) -> str:
    preset = run.params.get("preset")
    if "preset" in fields and preset not in (None, "", "custom"):
        return str(preset)
    shown = [f for f in fields if f != "preset"]
    return ", ".join(_text(run, f, len(shown) > 1) for f in shown)


def _text(run: RunRow, field: str, is_named: bool) -> str:
    value = run.gpu_model if field == "gpu" else run.params.get(field, LATER_PARAMS.get(field))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{field} {text}" if is_named else text


def _key(run: RunRow) -> tuple[Any, ...]:
    return _job_key({"workload": run.workload, "params": run.params, "gpu": run.gpu_model})


def _job_key(job: Mapping[str, Any]) -> tuple[Any, ...]:
    params = {**LATER_PARAMS, **job["params"]}
    kept = sorted((k, str(v)) for k, v in params.items() if k not in NO_EFFECT)
    return job["workload"], job["gpu"], tuple(kept)

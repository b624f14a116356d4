"""Suggested comparisons: stored runs that differ in one field that people vary.

Of two runs that differ in several fields: the pair of runs that would isolate each field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.fields import QUESTIONS, VARIABLE_OF
from analysis.compare.records import Difference
from analysis.runview import RunRow
from core.numbers import value_text
from core.spec import LATER_PARAMS, NO_EFFECT, canonical_json

MAX_SIDES = 6
_PLAIN = ("none", "naive", "eager", "base", "torch", "1", "false")
"""Values that a comparison starts from, where one of the runs has it."""
_NOT_OFFERED = ("command", "ranks", "straggler")
"""Other programs, and other numbers of GPUs, are not two ways of one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Runs that differ in one variable only."""

    variable: str
    a: RunRow
    b: tuple[RunRow, ...]
    values: tuple[str, ...]
    "The variable's value of A, then of each B."
    same: Mapping[str, Any]
    "The parameters that all of them share."


def offers(runs: Sequence[RunRow], *, limit: int = 12) -> tuple[Offer, ...]:
    """Return the groups of runs that differ in one variable alone.

    `runs`: the newest first; of a job the newest is taken. The groups with the newest runs come
    first, a variable and workload at a time, so that one large sweep does not hide all others.
    """
    stated = [(run, _texts_of(run)) for run in reversed(runs)]
    newest = list({_rest(run, "", texts): (run, texts) for run, texts in stated}.values())[::-1]
    groups: dict[str, list[RunRow]] = {}
    for run, texts in newest:
        for variable in _variables(run, texts):
            groups.setdefault(_rest(run, variable, texts), []).append(run)
    all_offers = [
        _offer(key.split(" ", 1)[0], group) for key, group in groups.items() if len(group) > 1
    ]
    return tuple(_by_turns(all_offers)[:limit])


def _by_turns(all_offers: Sequence[Offer]) -> list[Offer]:
    """Return the first offer of each variable and workload, then the second of each, and so on."""
    seen: dict[tuple[str, str | None], int] = {}
    turns = []
    for place, offer in enumerate(all_offers):
        kind = (offer.variable, offer.a.workload)
        seen[kind] = seen.get(kind, 0) + 1
        turns.append((seen[kind], place, offer))
    return [offer for *_, offer in sorted(turns, key=lambda turn: turn[:2])]


def _params(run: RunRow) -> dict[str, Any]:
    return {
        k: v for k, v in run.params.items() if k not in NO_EFFECT and LATER_PARAMS.get(k, "") != v
    }


def _texts_of(run: RunRow) -> dict[str, str]:
    """Return each parameter with its value, by name."""
    return {k: f"{k} {canonical_json(v)}" for k, v in _params(run).items()}


def _variables(run: RunRow, texts: Mapping[str, str]) -> list[str]:
    fields = (VARIABLE_OF.get(name, name) for name in texts)
    offered = QUESTIONS - {*_NOT_OFFERED}
    always = ["gpu", "settings"] if run.workload == "command" else ["gpu"]
    return list(dict.fromkeys([*always, *(name for name in fields if name in offered)]))


def _rest(run: RunRow, variable: str, texts: Mapping[str, str]) -> str:
    """Name what a run is but for one variable; the variable's name comes first."""
    rest = sorted(text for k, text in texts.items() if VARIABLE_OF.get(k, k) != variable)
    gpu = "" if variable == "gpu" else run.gpu_model or ""
    return "\n".join([f"{variable} {run.workload}", gpu, *rest])


def _offer(variable: str, group: Sequence[RunRow]) -> Offer:
    texts = _values(group, variable)
    first = next((run for run in group if texts[run.id] in _PLAIN), group[-1])
    others = tuple(run for run in group if run is not first)[:MAX_SIDES]
    shared = {k: v for k, v in _params(first).items() if VARIABLE_OF.get(k, k) != variable}
    return Offer(
        variable=variable,
        a=first,
        b=others,
        values=(texts[first.id], *(texts[run.id] for run in others)),
        same=shared,
    )


def _values(group: Sequence[RunRow], variable: str) -> dict[str, str]:
    """Return the variable's value of each run; of one that has parts, the parts that differ."""
    if variable == "gpu":
        return {run.id: run.gpu_model or "" for run in group}
    parts = {
        run.id: {
            k: value_text(v) for k, v in _params(run).items() if VARIABLE_OF.get(k, k) == variable
        }
        for run in group
    }
    names = sorted({name for fields in parts.values() for name in fields})
    distinguishing = [n for n in names if len({fields.get(n) for fields in parts.values()}) > 1]
    if distinguishing == [variable]:
        plain = value_text(LATER_PARAMS.get(variable, "unknown"))
        return {run_id: fields.get(variable, plain) for run_id, fields in parts.items()}
    return {
        run_id: ", ".join(f"{n} {fields[n]}" for n in distinguishing if n in fields)
        for run_id, fields in parts.items()
    }


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
    "Runs of the pair; one of them is the comparison's own, the other None if it was not run."
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
        measured_as = next((r.id for r in known if _job_key(r.job) == _job_key(job)), None)
        if measured_as is not None:
            pair = (base.id, measured_as) if place == 0 else (measured_as, base.id)
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
    return base.job | {"params": params, "gpu": gpu}


def _texts(run: RunRow, fields: Sequence[str]) -> str:
    preset = run.params.get("preset")
    if "preset" in fields and preset not in (None, "", "custom"):
        return str(preset)
    shown = [f for f in fields if f != "preset"]
    return ", ".join(_params_text(run, f, len(shown) > 1) for f in shown)


def _params_text(run: RunRow, field: str, is_named: bool) -> str:
    value = run.gpu_model if field == "gpu" else run.params.get(field, LATER_PARAMS.get(field))
    return f"{field} {value_text(value)}" if is_named else value_text(value)


def _job_key(job: Mapping[str, Any]) -> tuple[Any, ...]:
    params = {**LATER_PARAMS, **job["params"]}
    kept = sorted((k, str(v)) for k, v in params.items() if k not in NO_EFFECT)
    return job["workload"], job["gpu"], tuple(kept)

"""Suggested comparisons: stored runs that differ in one field that people vary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.fields import QUESTIONS, VARIABLE_OF
from core.spec import LATER_PARAMS, NO_EFFECT, canonical_json

MAX_SIDES = 6
_PLAIN = ("none", "naive", "eager", "base", "torch", "1", "false")
"""Values that a comparison starts from, where one of the runs has it."""
_NOT_OFFERED = ("command", "ranks", "straggler")
"""Other programs, and other numbers of GPUs, are no two ways of one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a suggestion needs to know of a finished run."""

    run_id: str
    workload: str
    gpu_model: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Runs that differ in one variable only."""

    variable: str
    workload: str
    gpu_model: str
    "Of side A; the variable itself where it is the GPU."
    a: MeasuredRun
    b: tuple[MeasuredRun, ...]
    values: tuple[str, ...]
    "The variable's value of A, then of each B."
    same: Mapping[str, Any]
    "The parameters that all of them share."


def offers(runs: Sequence[MeasuredRun], *, limit: int = 12) -> tuple[Offer, ...]:
    """Return the groups of runs that differ in one variable alone.

    `runs`: the newest first; of a job the newest is taken. The groups with the newest runs come
    first, a variable and workload at a time, so that one large sweep does not hide all others.
    """
    newest = list({_job(run): run for run in reversed(runs)}.values())[::-1]
    groups: dict[str, list[MeasuredRun]] = {}
    for run in newest:
        for variable in _variables(run):
            groups.setdefault(_rest(run, variable), []).append(run)
    found = [_offer(key.split(" ", 1)[0], group) for key, group in groups.items() if len(group) > 1]
    return tuple(_by_turns(found)[:limit])


def _by_turns(found: Sequence[Offer]) -> list[Offer]:
    """Return the first offer of each variable and workload, then the second of each, and so on."""
    seen: dict[tuple[str, str], int] = {}
    turns = []
    for place, offer in enumerate(found):
        kind = (offer.variable, offer.workload)
        seen[kind] = seen.get(kind, 0) + 1
        turns.append((seen[kind], place, offer))
    return [offer for *_, offer in sorted(turns, key=lambda turn: turn[:2])]


def _params(run: MeasuredRun) -> dict[str, Any]:
    return {
        k: v for k, v in run.params.items() if k not in NO_EFFECT and LATER_PARAMS.get(k, "") != v
    }


def _job(run: MeasuredRun) -> str:
    return canonical_json([run.workload, run.gpu_model, _params(run)])


def _variables(run: MeasuredRun) -> list[str]:
    fields = (VARIABLE_OF.get(name, name) for name in _params(run))
    offered = QUESTIONS - {*_NOT_OFFERED}
    return list(dict.fromkeys(["gpu", *(name for name in fields if name in offered)]))


def _rest(run: MeasuredRun, variable: str) -> str:
    """Name what a run is but for one variable; the variable's name comes first."""
    rest = {k: v for k, v in _params(run).items() if VARIABLE_OF.get(k, k) != variable}
    gpu = "" if variable == "gpu" else run.gpu_model
    return f"{variable} {canonical_json([run.workload, gpu, rest])}"


def _offer(variable: str, group: Sequence[MeasuredRun]) -> Offer:
    texts = _values(group, variable)
    first = next((run for run in group if texts[run.run_id] in _PLAIN), group[-1])
    others = tuple(run for run in group if run is not first)[:MAX_SIDES]
    shared = {k: v for k, v in _params(first).items() if VARIABLE_OF.get(k, k) != variable}
    return Offer(
        variable=variable,
        workload=first.workload,
        gpu_model=first.gpu_model,
        a=first,
        b=others,
        values=(texts[first.run_id], *(texts[run.run_id] for run in others)),
        same=shared,
    )


def _values(group: Sequence[MeasuredRun], variable: str) -> dict[str, str]:
    """Return the variable's value of each run; of one that has parts, the parts that differ."""
    if variable == "gpu":
        return {run.run_id: run.gpu_model for run in group}
    parts = {
        run.run_id: {
            k: _text(v) for k, v in _params(run).items() if VARIABLE_OF.get(k, k) == variable
        }
        for run in group
    }
    names = sorted({name for fields in parts.values() for name in fields})
    told = [n for n in names if len({fields.get(n) for fields in parts.values()}) > 1]
    if told == [variable]:
        return {run_id: fields.get(variable, "unknown") for run_id, fields in parts.items()}
    return {
        run_id: ", ".join(f"{n} {fields[n]}" for n in told if n in fields)
        for run_id, fields in parts.items()
    }


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

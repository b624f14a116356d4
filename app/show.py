"""The document of `show --json`: a run view as plain values, without what is unknown."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.memory_curve import rows_to_keep
from analysis.per_step import by_step_document
from analysis.runview import RunRow, RunView
from analysis.verdict import run_verdict
from db.fetch import CAPTURE_COLUMNS

MAX_MEMORY_POINTS = 2000
_READY = frozenset({str, int, bool})
_RUN_FIELDS = (
    "id",
    "name",
    "source",
    "status",
    "workload",
    "params",
    "profilers",
    "repeats",
    "sweep_id",
    "created_at",
    "started_at",
    "finished_at",
    "worker_id",
    "attempt",
    "environment",
    "error",
    "oom",
    "tags",
    "notes",
    "is_baseline",
)
_CAPTURE_FIELDS = tuple(c for c in CAPTURE_COLUMNS if c not in ("id", "spans_path", "num_spans"))


def show_document(view: RunView, gpu: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the keys of the command line's contract; NaN, None and <NA> are left out."""
    return {
        "run": run_document(view.run, gpu),
        "summary": plain(view.summary),
        "verdict": run_verdict(view).as_dict() if view.run.status in ("done", "oom") else None,
        "primary_pass": view.primary_pass,
        "phases": records(view.phases),
        "kernels": records(view.kernels),
        "api_calls": records(view.api_calls),
        "transfers": records(view.transfers),
        "gaps": records(view.gaps),
        "memory": _memory(view),
        "counters": records(view.counters),
        "rules": records(view.rules),
        "counter_details": records(view.counter_details),
        "counter_sources": records(view.counter_sources),
        "ranks": view.ranks.get("ranks", []),
        "collectives": view.ranks.get("collectives", []),
        **_by_step(view),
        "rank_steps": view.ranks.get("steps", []),
        "samples": records(view.samples),
        "metrics": records(view.metrics),
        "cost": plain(view.cost),
        "peaks": plain(view.peaks),
        "captures": records(view.captures[list(_CAPTURE_FIELDS)]),
        "warnings": [{"code": w.code, "message": w.message} for w in view.warnings],
    }


def _by_step(view: RunView) -> dict[str, Any]:
    """Return steps, operators and host time; a step without a block says so."""
    document = plain(by_step_document(view.by_step))
    steps = document.setdefault("steps", None)
    if steps:
        steps.setdefault("block", None)
    return dict(document)


def run_document(run: RunRow, gpu: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the `run` part; `gpu` holds the facts that are known of the device."""
    document = {name: plain(getattr(run, name)) for name in _RUN_FIELDS}
    document = {k: v for k, v in document.items() if v is not None}
    facts = {"name": run.gpu_model, "id": run.gpu_id, **(gpu or {})}
    known = {k: v for k, v in plain(facts).items() if v is not None}
    # Always there, so that a script can distinguish "no error" from "not recorded".
    return document | {"gpu": known or None, "error": run.error, "workload": run.workload}


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as mappings of Python values, each without its unknown cells."""
    if frame.empty:
        return []
    columns = {name: frame[name].astype(object).tolist() for name in frame.columns}
    names = list(columns)
    return [
        {n: plain(v) for n, v in zip(names, row, strict=True) if not _is_unknown(v)}
        for row in zip(*columns.values(), strict=True)
    ]


def plain(value: Any) -> Any:
    """Return JSON-ready values: numpy scalars as Python ones, what is unknown as None or absent."""
    if type(value) in _READY:
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items() if not _is_unknown(v)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    return None if _is_unknown(value) else value


def _is_unknown(value: Any) -> bool:
    if type(value) in _READY:
        return False
    if value is None or value is pd.NA:
        return True
    return isinstance(value, float) and not math.isfinite(value)


def _memory(view: RunView) -> dict[str, Any]:
    if not view.memory and view.memory_points.empty:
        return {}
    points = view.memory_points
    curves = [points[c].astype("float64") for c in ("allocated_bytes", "requested_bytes")]
    shown = points.iloc[rows_to_keep(curves, MAX_MEMORY_POINTS)]
    return {
        **plain(view.memory),
        "num_points": len(points),
        "points": records(shown),
        "at_peak": records(view.memory_at_peak),
    }

"""RunViews made from the stored captures, for tests of what is computed from a view."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import tables
from analysis.assemble import classify_names
from analysis.classify import fractions
from analysis.idle import idle_figures
from analysis.readers.nsys.export import read_nsys_sqlite
from analysis.runview import RunRow, RunView

NSYS = Path(__file__).parent.parent / "data" / "h100" / "nsys"
COUNTERS = (*tables.COUNTER_COLUMNS, "category", "origin")


def empty_view(**changes: Any) -> RunView:
    """Return a view that holds nothing, with the given fields changed."""
    frames = {
        "samples": tables.SAMPLE_COLUMNS,
        "profiled_samples": (*tables.SAMPLE_COLUMNS, "pass"),
        "kernels": tables.KERNEL_COLUMNS,
        "phases": tables.PHASE_COLUMNS,
        "api_calls": tables.API_CALL_COLUMNS,
        "transfers": tables.TRANSFER_COLUMNS,
        "gaps": tables.GAP_COLUMNS,
        "memory_points": tables.MEMORY_POINT_COLUMNS,
        "memory_at_peak": tables.MEMORY_AT_PEAK_COLUMNS,
        "counters": COUNTERS,
        "rules": tables.RULE_COLUMNS,
    }
    view = RunView(
        run=RunRow(id="r1", name="a run", source="imported", status="done"),
        summary={}, primary_pass=None, memory={}, span_paths=(), warnings=(), cost={}, peaks={},
        noise_floor_frac=None, captures=pd.DataFrame(), metrics=pd.DataFrame(),
        **{name: tables.empty(columns) for name, columns in frames.items()},
    )  # fmt: skip
    return replace(view, **changes)


def nsys_view(name: str, **params: Any) -> RunView:
    """Return the view of one nsys capture in tests/data, as the database would give it back."""
    read = read_nsys_sqlite(NSYS / f"{name}.sqlite")
    kernels = read.kernels if read.kernels is not None else tables.empty(tables.KERNEL_COLUMNS)
    flags = dict(zip(kernels["name"], kernels["is_opaque"].astype(bool), strict=True))
    classes = {c.name: c for c in classify_names(flags)}
    for field in ("category", "origin", "short_name"):
        kernels[field] = [getattr(classes[n], field) for n in kernels["name"]]
    shares = {k: v for k, v in fractions(kernels).items() if k.endswith("_frac")}
    run = RunRow(
        id="r1", name=name, source="imported", status="done", params=params,
        gpu_model=str(read.gpu["name"]) if read.gpu.get("name") else None,
    )  # fmt: skip
    summary = {**read.summary, **shares}
    summary["profiled_idle_frac"] = summary.pop("idle_frac", None)
    summary |= idle_figures(summary, None)
    return empty_view(
        run=run, summary=summary, primary_pass="nsys", kernels=kernels,
        phases=read.phases, api_calls=read.api_calls, transfers=read.transfers, gaps=read.gaps,
    )  # fmt: skip

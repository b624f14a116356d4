"""Frames as tables show them: labels, shares, text. Units are converted here, nowhere else."""

from typing import Any

import pandas as pd

from analysis.definitions import LISTED
from analysis.iterations import normalise
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.ui.format import UNKNOWN, ago, gpu_name, when

_BORING = frozenset({"iterations", "warmup", "seed", "memory_cap_gib"})
TELLING = ("mode", "preset", "compile", "implementation", "dtype", "batch", "context", "seq_len")
"""Parameters that tell runs apart at a glance, before those that follow from them."""
_MOST_PARAMS = 5


def is_there(value: object) -> bool:
    """Say whether a cell holds anything: None, NaN and pandas' NA are nothing."""
    return value is not None and value is not pd.NA and value == value


def varying_params(params: list[dict[str, Any]]) -> list[str]:
    """Return the parameters that differ between these runs, in their first order of appearance."""
    names = list(dict.fromkeys(k for p in params for k in p))
    return [n for n in names if len({str(p.get(n, UNKNOWN)) for p in params}) > 1]


def params_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one text column per parameter that varies among these runs, the most telling first."""
    params = frame["params"].to_list()
    varying = [n for n in varying_params(params) if n not in _BORING]
    first = [n for n in TELLING if n in varying]
    chosen = [*first, *(n for n in varying if n not in first)][:_MOST_PARAMS]
    return pd.DataFrame({n: [str(p.get(n, "")) for p in params] for n in chosen}, index=frame.index)


def run_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return runs with display units: ms, GB, per cent; unknown stays empty."""
    listed = {
        d.list_title: pd.to_numeric(frame[d.column], errors="coerce").astype("float64")
        * d.list_scale
        for d in LISTED
    }
    half = (frame["latency_hi_ms"] - frame["latency_lo_ms"]) / 2
    return pd.DataFrame(
        {
            "id": frame["id"],
            "name": frame["name"],
            "status": [[status_text(s)] for s in frame["status"]],
            "workload": frame["workload"].fillna(""),
            "GPU": [gpu_name(m) if pd.notna(m) else None for m in frame["gpu_model"]],
            **listed,
            "idle of": frame["idle_source"].map(_IDLE_OF),
            "samples": frame["num_samples"],
            "\u00b1 %": 100 * half / frame["latency_ms"],
            "tags": frame["tags"],
            "baseline": frame["is_baseline"],
            "notes": frame["notes"],
            "source": frame["source"],
            "created": [when(t) for t in frame["created_at"]],
            "age": [ago(t) for t in frame["created_at"]],
            "error": frame["error"].fillna(""),
        }
    )


_IDLE_OF = {"clean": "clean pass", "steps": "its steps", "profiled": "whole capture"}


def status_text(status: str) -> str:
    """Return a run's state as it is shown."""
    return status.upper() if status == "oom" else status


def two_sides(frame: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Split chosen runs (oldest first) into the sides of a comparison.

    Runs that are repeats of one measurement (same workload, params and GPU) stay together; the
    oldest run's measurement is side A, all others are side B.
    """
    ordered = frame.sort_values("created_at", kind="stable")
    keys = [
        (str(r.workload), str(sorted(r.params.items())), str(r.gpu_model))
        for r in ordered.itertuples()
    ]
    side_a = [i for i, k in zip(ordered["id"], keys, strict=True) if k == keys[0]]
    side_b = [i for i in ordered["id"] if i not in side_a]
    if not side_b:
        return side_a[:1], side_a[1:]
    return side_a, side_b


def device_text(view: RunView) -> str:
    """Return what a run ran on, as a short fact."""
    if view.run.gpu_model:
        return gpu_name(view.run.gpu_model)
    return "CPU" if is_cpu_run(view) else "GPU not known"


def class_shares(kernels: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return total_ns and share_frac of each class, largest first."""
    totals = kernels.groupby(by, as_index=False)["total_ns"].sum()
    whole = float(totals["total_ns"].sum()) or 1.0
    return totals.assign(share_frac=totals["total_ns"] / whole).sort_values(
        "total_ns", ascending=False
    )


def merged_phases(phases: pd.DataFrame) -> pd.DataFrame:
    """Return phases summed over iterations: `iteration_N` becomes one `iteration`, plus `label`."""
    if phases.empty:
        return phases.assign(label=[])
    path = phases["path"].map(lambda p: normalise(str(p)).replace("iteration_*", "iteration"))
    keyed = phases.assign(path=path)
    summed = keyed.groupby(["path", "process", "attribution"], as_index=False, sort=False).agg(
        num_ranges=("num_ranges", "sum"),
        host_ns=("host_ns", _sum),
        projected_ns=("projected_ns", _sum),
        kernel_ns=("kernel_ns", _sum),
        num_kernels=("num_kernels", _sum),
        first_start_ns=("first_start_ns", "min"),
    )
    depth = summed["path"].str.count("/")
    leaf = summed["path"].str.rsplit("/", n=1).str[-1]
    label = ["\u2003" * d + name for d, name in zip(depth, leaf, strict=True)]
    order = summed.assign(label=label).sort_values(["process", "path"], kind="stable")
    return order.reset_index(drop=True)


def _sum(values: pd.Series) -> Any:
    """Sum, unknown when all are unknown."""
    return values.sum(min_count=1)

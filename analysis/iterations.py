"""Iterations of a capture: how many were profiled and the kernel time of one.

An iteration is an annotated range whose name is a running number (`iteration_3`, `ProfilerStep#7`).
One that lies inside another is a part of it and is not counted again.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from core.trace_rules import MEASURED_RANGE, is_iteration, is_iteration_path, iteration_path

COUNTER = re.compile(r"\b(seq|op_id|step|iteration|batch)(\s*[=:#]\s*)\d+", re.I)


@lru_cache(maxsize=65_536)
def normalise(path: str | None) -> str:
    """Return the path with running numbers replaced: `BENCHMARK/iteration_*/forward`.

    Numbers that autograd's ranges carry (`aten::mm, seq = 12, op_id = 34`) become `*` too.
    """
    parts = (path or "").split("/")
    return "/".join("iteration_*" if is_iteration(p) else COUNTER.sub(r"\1\2*", p) for p in parts)


def tail(path: str) -> str:
    """Return the part below the iteration (or the whole normalised path)."""
    return normalise(path).split("iteration_*/")[-1]


@lru_cache(maxsize=65_536)
def top_phase(path: str | None) -> str:
    """Return the outermost phase below the iteration (`forward`), empty for none.

    `BENCHMARK`, which surrounds all iterations of a run, and the iteration itself are not phases.
    """
    parts = [p for p in (path or "").split("/") if p != MEASURED_RANGE and not is_iteration(p)]
    return parts[0] if parts else ""


def at_path(paths: Sequence[str], wanted: str) -> list[bool]:
    """Say which range paths end in `wanted` (normalised), those inside another such left out.

    An iteration inside a profiler's step, or a range that calls itself, is a part of the outer one:
    summed with it, its time would count twice.
    """
    places = [f"/{normalise(path)}".endswith(f"/{wanted}") for path in paths]
    chosen = {path for path, is_there in zip(paths, places, strict=True) if is_there}
    return [
        is_there and not any(parent in chosen for parent in _parents(path))
        for path, is_there in zip(paths, places, strict=True)
    ]


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def iteration_of(path: str | None) -> str:
    """Return the path down to its outermost iteration, numbers kept; empty outside iterations."""
    return iteration_path(path or "") or ""


def iteration_rows(phases: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of PHASE_COLUMNS that are iterations, nested ones left out."""
    paths: Iterable[str] = phases["path"].to_list() if len(phases) else ()
    chosen = [is_iteration_path(path or "") for path in paths]
    return phases[chosen] if chosen else phases


def num_iterations(phases: pd.DataFrame) -> int | None:
    """Return the number of iterations whose work the capture holds; None when no range says so.

    An iteration without a kernel beside others that have some is left out: its kernels were not
    recorded (a profiler that started late), and sums over the capture do not hold them.
    """
    if not len(phases):
        return None
    rows = iteration_rows(phases)
    has_kernels = rows["kernel_ns"].to_numpy(dtype=float, na_value=np.nan) > 0
    counted = rows[has_kernels] if has_kernels.any() else rows
    return int(counted["num_ranges"].sum()) or None


def iteration_kernel_ns(phases: pd.DataFrame) -> float | None:
    """Return the median over iterations of the kernel time inside one; None when unknown.

    An iteration without a kernel was not recorded by the GPU's side of the profiler: it is left
    out, since work that was not recorded is not work that took no time.
    """
    if not len(phases):
        return None
    rows = iteration_rows(phases)
    kernel_ns = rows["kernel_ns"].to_numpy(dtype=float, na_value=np.nan)
    num_ranges = rows["num_ranges"].to_numpy(dtype=float)
    known = (kernel_ns > 0) & (num_ranges > 0)
    return float(np.median(kernel_ns[known] / num_ranges[known])) if known.any() else None

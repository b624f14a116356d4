"""Kernels by phase: which kernels ran in each of the program's own ranges, and for how long.

Read from a run's span file, so that any stored run has it. A phase is the path of ranges below the
iteration (`forward/attention`); what a kernel's own phase lies in holds the kernel, too.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.iterations import iteration_of, tail
from core.trace_rules import MEASURED_RANGE, PATH_SEPARATOR

PHASE_KERNEL_COLUMNS = (
    "phase",  # str, below the iteration; "" for kernels in no phase
    "name",  # str
    "count",  # float64
    "total_ns",  # float64
)
"""One row a phase and kernel name, in what the phase itself launched, longest first."""
_READ = ["start_ns", "end_ns", "process", "kind", "name", "path", "launch_start_ns"]
_KERNELS = ("kernel", "graph")


def phase_kernels(paths: Sequence[Path], steps: pd.DataFrame) -> tuple[pd.DataFrame, int | None]:
    """Return PHASE_KERNEL_COLUMNS and the number of steps that they are the mean of.

    Of the regular steps of the process with most of them; None: without steps, or where several
    files have clocks of their own, the sums are of the whole capture.
    """
    regular = _regular(steps) if len(paths) == 1 else steps.iloc[:0]
    parts = [_sums(path, regular) for path in paths]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if found.empty:
        return pd.DataFrame({name: [] for name in PHASE_KERNEL_COLUMNS}), None
    found["phase"] = found["path"].map({p: phase_of(p) for p in found["path"].unique()})
    sums = found.groupby(["phase", "name"], as_index=False)[["count", "total_ns"]].sum()
    num = len(regular) or None
    sums[["count", "total_ns"]] = sums[["count", "total_ns"]].astype(float) / (num or 1)
    ordered = sums.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return ordered[list(PHASE_KERNEL_COLUMNS)], num


def phase_of(path: str) -> str:
    """Return the phase of a range's path; empty for the iteration itself and what is around it."""
    if path in ("", MEASURED_RANGE) or path == iteration_of(path):
        return ""
    below = tail(path)
    return below.removeprefix(MEASURED_RANGE + PATH_SEPARATOR)


def _regular(steps: pd.DataFrame) -> pd.DataFrame:
    if steps.empty or not steps["is_regular"].any():
        return steps.iloc[:0]
    chosen = steps[steps["is_regular"].astype(bool)]
    return chosen[chosen["process"] == chosen["process"].mode()[0]].sort_values("start_ns")


def _sums(path: Path, regular: pd.DataFrame) -> pd.DataFrame:
    """Return path, name, count and total_ns of one file's kernels, those of the steps if any."""
    table = pq.read_table(path, columns=_READ)
    columns = {n: table[n].combine_chunks() for n in ("kind", "name", "path")}
    kinds, kind_names = _coded(columns["kind"])
    chosen = np.isin(kinds, [i for i, name in enumerate(kind_names) if name in _KERNELS])
    start, end = (table[n].to_numpy() for n in ("start_ns", "end_ns"))
    if len(regular):
        launched = table["launch_start_ns"].cast("float64").to_numpy()
        chosen &= table["process"].to_numpy() == regular["process"].iloc[0]
        chosen &= _inside(np.where(np.isnan(launched), start, launched), regular)
    names, name_texts = _coded(columns["name"])
    paths, path_texts = _coded(columns["path"])
    key = (paths[chosen].astype(np.int64) + 1) * max(len(name_texts), 1) + names[chosen]
    groups, row = np.unique(key, return_inverse=True)
    texts = ["", *path_texts]
    return pd.DataFrame(
        {
            "path": [texts[g // max(len(name_texts), 1)] for g in groups.tolist()],
            "name": [name_texts[g % max(len(name_texts), 1)] for g in groups.tolist()],
            "count": np.bincount(row, minlength=len(groups)),
            "total_ns": np.bincount(row, (end - start)[chosen], minlength=len(groups)),
        }
    )


def _inside(time_ns: np.ndarray, steps: pd.DataFrame) -> np.ndarray:
    first, last = (steps[n].to_numpy(np.int64) for n in ("start_ns", "end_ns"))
    place = np.searchsorted(first, time_ns, side="right") - 1
    return np.asarray((place >= 0) & (time_ns < last[np.maximum(place, 0)]))


def _coded(column: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return codes (-1 where absent) and texts of a column of texts."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return coded.indices.fill_null(-1).to_numpy(), coded.dictionary.to_pylist()

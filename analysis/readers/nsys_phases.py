"""The phases table: host time, GPU projection and kernel sum of each range path, kept apart.

`kernel_ns` is missing for a path with opaque CUDA graph launches: the kernels inside were not
recorded, and a sum without them would look complete. `projected_ns` includes graphs and copies.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.readers.nsys_columns import Ints
from analysis.readers.nsys_nesting import RangeTree
from analysis.readers.nsys_phase_overlaps import add_overlapping
from analysis.readers.nsys_phase_sums import NO_TIME, PhaseSums
from analysis.tables import PHASE_COLUMNS

MAX_PATHS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases frame (PHASE_COLUMNS) and what did not fit."""

    frame: pd.DataFrame
    num_left_out: int
    num_uncounted: int
    "Ranges whose count includes launches that outlast them (only crafted files)."


def phases(
    sums: PhaseSums, tree: RangeTree, processes: Ints, *, has_work: bool, by_device_time: bool
) -> Phases:
    """Return one row a path and process; kernel figures are missing where no GPU work is known."""
    totals = sums.by_path()
    num_uncounted = sum(
        add_overlapping(totals, tree, tree.threads[index][1], parts)
        for index, parts in sums.overlapping.items()
    )
    frame = _frame(totals, tree, processes, has_work, by_device_time)
    kept = _largest(frame)
    return Phases(frame=kept, num_left_out=len(frame) - len(kept), num_uncounted=num_uncounted)


def _frame(
    totals: dict[str, Ints], tree: RangeTree, processes: Ints, has_work: bool, by_device_time: bool
) -> pd.DataFrame:
    num_paths = len(tree.paths)
    path = tree.path
    host = np.zeros(num_paths, np.int64)
    np.add.at(host, path, tree.ranges.end_ns - tree.ranges.start_ns)
    first_start = np.full(num_paths, NO_TIME)
    np.minimum.at(first_start, path, tree.ranges.start_ns)
    by_process = "device_time" if by_device_time else "process_time"
    frame = pd.DataFrame(
        {
            "path": pd.Series(tree.paths, dtype="str"),
            "process": np.searchsorted(processes, tree.path_process),
            "num_ranges": np.bincount(path, minlength=num_paths),
            "host_ns": pd.array(host, "Int64"),
            "projected_ns": _known(totals["projected_ns"], np.full(num_paths, has_work)),
            "kernel_ns": _known(totals["kernel_ns"], has_work & (totals["num_opaque"] == 0)),
            "num_kernels": totals["num_kernels"],
            "attribution": np.where(totals["num_adopted"] > 0, by_process, "launch_thread"),
            "first_start_ns": first_start,
        },
        columns=list(PHASE_COLUMNS),
    )
    return frame.sort_values(["process", "first_start_ns"], kind="stable", ignore_index=True)


def _known(values: Ints, is_known: NDArray[np.bool_]) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.copy(), ~is_known)


def _largest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most MAX_PATHS rows: the shallow ones first, then the longest."""
    if len(frame) <= MAX_PATHS:
        return frame
    depth = frame["path"].str.count("/")
    order = np.lexsort((-frame["host_ns"].to_numpy(np.int64), depth))
    return frame.iloc[np.sort(order[:MAX_PATHS])].reset_index(drop=True)

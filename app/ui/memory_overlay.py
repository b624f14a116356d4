"""The memory curve of another pass, laid over the steps of a timeline.

The memory pass is an execution of its own with a clock of its own: its steps are put over as many
steps of the timeline, each stretched to that step's length. It shows when in a step memory rises
and falls, not at which moment of this execution.
"""

import numpy as np
import pandas as pd

from analysis.iterations import iteration_of, top_phase
from analysis.readers.memory.roles import kind_of_phase
from analysis.readers.memory.sites import EARLIER


def laid_over(points: pd.DataFrame, steps: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return time_ns (on the steps' clock) and allocated_bytes, and how many steps they cover.

    `steps`: STEP_COLUMNS of one process. Nothing, and 0, where either has no steps.
    """
    nothing = points.iloc[:0][["time_ns", "allocated_bytes"]]
    if points.empty or steps.empty:
        return nothing, 0
    points = points[points["device"] == points["device"].iloc[0]]
    regular = steps[steps["is_regular"].astype(bool)]
    known = [isinstance(p, str) and top_phase(p) not in ("", EARLIER) for p in points["phase"]]
    inside = points[known].sort_values("time_ns", kind="stable")
    if inside.empty or regular.empty:
        return nothing, 0
    edges = _edges(inside)
    num = min(len(edges) - 1, len(regular))
    targets = regular.tail(num)
    parts = []
    for i, (start, end) in enumerate(zip(targets["start_ns"], targets["end_ns"], strict=True)):
        first, last = edges[i], edges[i + 1]
        part = inside[(inside["time_ns"] >= first) & (inside["time_ns"] < last)]
        scale = (end - start) / max(1, last - first)
        moved = start + (part["time_ns"].to_numpy(np.float64) - first) * scale
        allocated = part["allocated_bytes"].to_numpy()
        parts.append(pd.DataFrame({"time_ns": moved, "allocated_bytes": allocated}))
    return pd.concat(parts, ignore_index=True), num


def _edges(points: pd.DataFrame) -> list[int]:
    """Return where the steps begin, and the end of the last.

    Numbered ranges tell, else the first forward pass after an optimizer's step; without either it
    is one step.
    """
    times = points["time_ns"].to_numpy(np.int64)
    end = int(times[-1]) + 1
    names = [iteration_of(p) for p in points["phase"]]
    begins = [
        int(t)
        for t, name, before in zip(times, names, ["", *names[:-1]], strict=True)
        if name and name != before
    ]
    return [*(begins or [int(times[0]), *_after_optimizer(points, times)]), end]


def _after_optimizer(points: pd.DataFrame, times: np.ndarray) -> list[int]:
    begins, is_after = [], False
    for phase, time_ns in zip(points["phase"], times.tolist(), strict=True):
        kind = kind_of_phase(phase)
        if kind == "forward" and is_after:
            begins.append(int(time_ns))
        is_after = kind == "optimizer" or (is_after and kind != "forward")
    return begins

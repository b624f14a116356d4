"""Latency of a run from its samples: centre, spread and a bootstrap interval."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

NUM_REPLICATES = 2000
MAX_DRAWS_AT_ONCE = 4_000_000
MIN_FOR_FAST = 4
"""Processes from which a quarter of them is one."""
SEED = 20_261_127
NS_PER_MS = 1e6


def why_no_clean(warning_codes: Iterable[str]) -> str:
    """Say why a run has no clean latency: a clean pass may have run and seen no step."""
    if "no_steps_seen" in set(warning_codes):
        return "the clean pass saw no steps"
    return "no clean pass"


def latency_ms(samples: pd.DataFrame) -> dict[str, Any]:
    """Return median, ci95, mean, std, min, max, cv, p95, fast, n, num_processes (ms).

    {} without samples. fast: the lower quartile of the processes' medians, from MIN_FOR_FAST on.
    `samples` has `process` and `latency_ns`. The interval is a percentile bootstrap of the median
    over processes, then over the samples inside each (Davison and Hinkley 1997, section 3.8); with
    one process over its samples alone, and noise between processes is then not in it. std is the
    sample standard deviation (n - 1); cv = std / mean; p95 interpolates linearly. One sample has
    neither interval nor spread. The seed is fixed: equal samples give an equal answer.
    """
    return latency_of_processes(
        [g.to_numpy(dtype=float) / NS_PER_MS for _, g in samples.groupby("process").latency_ns]
    )


def latency_of_processes(groups: list[np.ndarray]) -> dict[str, Any]:
    """Return what `latency_ms` does, of the ms of each process."""
    if not groups:
        return {}
    values = np.concatenate(groups)
    statistics: dict[str, Any] = {
        "median": float(np.median(values)),
        "mean": float(values.mean()),
        "min": float(values.min()),
        "max": float(values.max()),
        "p95": float(np.percentile(values, 95)),
        "n": len(values),
        "num_processes": len(groups),
    }
    if len(groups) >= MIN_FOR_FAST:
        statistics["fast"] = float(np.percentile([np.median(g) for g in groups], 25))
    if len(values) > 1:
        low, high = np.percentile(_bootstrap_medians(groups), (2.5, 97.5))
        statistics["ci95"] = [float(low), float(high)]
        statistics["std"] = float(values.std(ddof=1))
        if statistics["mean"] > 0:
            statistics["cv"] = statistics["std"] / statistics["mean"]
    return statistics


def _bootstrap_medians(groups: list[np.ndarray]) -> np.ndarray:
    generator = np.random.default_rng(SEED)
    if len(groups) == 1:
        return np.concatenate(list(_one_level(groups[0], generator)))
    if len({len(g) for g in groups}) == 1:
        return np.concatenate(list(_two_levels(np.stack(groups), generator)))
    medians = np.empty(NUM_REPLICATES)
    for i in range(NUM_REPLICATES):
        chosen = generator.integers(0, len(groups), len(groups))
        drawn = [generator.choice(groups[g], len(groups[g])) for g in chosen]
        medians[i] = np.median(np.concatenate(drawn))
    return medians


def _one_level(values: np.ndarray, generator: np.random.Generator) -> Iterable[np.ndarray]:
    rows = max(1, min(NUM_REPLICATES, MAX_DRAWS_AT_ONCE // len(values)))
    for start in range(0, NUM_REPLICATES, rows):
        count = min(rows, NUM_REPLICATES - start)
        draws = generator.integers(0, len(values), (count, len(values)))
        yield _medians(values[draws])


def _two_levels(values: np.ndarray, generator: np.random.Generator) -> Iterable[np.ndarray]:
    """Yield medians of replicates of `values` [processes, samples], all processes of one length."""
    rows = max(1, min(NUM_REPLICATES, MAX_DRAWS_AT_ONCE // values.size))
    for start in range(0, NUM_REPLICATES, rows):
        count = min(rows, NUM_REPLICATES - start)
        chosen = generator.integers(0, len(values), (count, len(values), 1))
        draws = generator.integers(0, values.shape[1], (count, *values.shape))
        yield _medians(values[chosen, draws].reshape(count, -1))


def _medians(rows: np.ndarray) -> np.ndarray:
    """Return the median of each row, whose values are put in another order on the way.

    What `np.median` gives, without a copy and a search for values that are not numbers.
    """
    middle = rows.shape[1] // 2
    if rows.shape[1] % 2:
        rows.partition(middle, axis=1)
        return rows[:, middle].copy()
    rows.partition((middle - 1, middle), axis=1)
    return rows[:, middle - 1 : middle + 1].mean(axis=1)

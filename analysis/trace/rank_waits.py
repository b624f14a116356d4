"""Who waited for whom: the collectives that ranks share, and who came to each of them last."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import union_of_each_ns
from analysis.trace.collective_kinds import SYNCHRONISING
from analysis.trace.model import MISSING, Bools, Int64s
from analysis.trace.rank_clocks import most_scatter_ns

STEP_COLUMNS = (
    "step",  # int64
    "num_collectives",  # int64
    "skew_ns",  # int64, largest time between the first and the last rank's arrival
    "straggler",  # int64, the rank that all others waited for longest
    "waited_ns",  # int64, that they waited for it
    "cause",  # str or None: `host` (its GPU was idle) or `compute` (its kernels took longer)
    "where",  # str or None: the host range that holds half or more of that idle time
)
"""One row per step with collectives of several ranks."""


def pair_calls(calls: pd.DataFrame, num_ranks: int) -> Int64s:
    """Return for each call the number of the collective that it is part of; -1 where unsure.

    By group and sequence number where recorded. Else the k-th call of a kind and group on one rank
    is that on another, as long as every rank of the group has as many of them.
    """
    if calls.empty or num_ranks < 2:
        return np.full(len(calls), -1, np.int64)
    group = calls["group"].fillna("").astype(str)
    has_sequence = calls["sequence"].notna() & (group != "")
    place = calls["sequence"].astype("float64").where(has_sequence, -1.0)
    keys = pd.DataFrame({"group": group, "kind": calls["kind"], "place": place})
    within = [*keys.columns, "row"]
    keys["row"] = calls["row"]
    keys["nth"] = keys.groupby(within, sort=False).cumcount()
    counted = keys[~has_sequence].groupby(["group", "kind", "row"], sort=False).size()
    uneven = counted.groupby(level=["group", "kind"]).nunique() > 1
    bad = set(uneven[uneven].index)
    number = keys.groupby(["group", "kind", "place", "nth"], sort=False).ngroup().to_numpy()
    is_bad = np.zeros(len(calls), np.bool_)
    if bad:
        pairs = zip(group, calls["kind"], strict=True)
        is_bad = ~has_sequence.to_numpy() & np.array([pair in bad for pair in pairs], np.bool_)
    size = np.bincount(number, minlength=int(number.max()) + 1)
    return np.where(is_bad | (size[number] < 2), -1, number).astype(np.int64)


def waits_of(calls: pd.DataFrame, paired: Int64s) -> pd.DataFrame:
    """Return the paired calls that synchronise, with how long each waited for the last to start.

    `last` marks the rank that came last, `waited_ns` how long all others waited for it alone.
    """
    is_sync = calls["kind"].isin(SYNCHRONISING).to_numpy() & (paired >= 0)
    waits = calls[is_sync].assign(number=paired[is_sync])
    waits = waits.sort_values(["number", "start_ns"], kind="stable", ignore_index=True)
    number, start = waits["number"].to_numpy(), waits["start_ns"].to_numpy()
    duration = waits["duration_ns"].to_numpy()
    if not len(waits):
        return waits.assign(wait_ns=[], last=[], waited_ns=[], skew_ns=[])
    first = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    last = np.append(first[1:], len(number)) - 1
    of_set = np.repeat(np.arange(len(first)), last - first + 1)
    latest = start[last]
    waited = np.zeros(len(waits), np.int64)
    waited[last] = latest - start[last - 1]
    is_last = np.zeros(len(waits), np.bool_)
    is_last[last] = True
    return waits.assign(
        wait_ns=np.clip(latest[of_set] - start, 0, duration),
        last=is_last,
        waited_ns=waited,
        skew_ns=(latest - start[first])[of_set],
    )


def waits_per_rank(waits: pd.DataFrame, num_ranks: int) -> tuple[Int64s, Int64s]:
    """Return how long each rank waited for the last of any collective, and how long all others
    waited for it. Collectives of several groups may run at once: such time counts once.
    """
    row, start = waits["row"].to_numpy(np.int64), waits["start_ns"].to_numpy(np.int64)
    own, others = (waits[name].to_numpy(np.int64) for name in ("wait_ns", "waited_ns"))
    return (
        union_of_each_ns(row, start, start + own, num_ranks),
        union_of_each_ns(row, start - others, start, num_ranks),
    )


def unpaired_scatter_ns(waits: pd.DataFrame | None) -> float | None:
    """Return the spread [ns] of ends within one collective, if too large.

    None can finish before all have started, so ends that scatter belong to different collectives.
    """
    if waits is None or waits.empty:
        return None
    ends = waits.groupby("number")["end_ns"]
    scatter = float((ends.max() - ends.min()).median())
    typical = float(waits["duration_ns"].median())
    return scatter if scatter > most_scatter_ns(typical) else None


def step_table(waits: pd.DataFrame | None) -> pd.DataFrame:
    """Return skew and straggler of each step; the step is that of the lowest rank of the call."""
    if waits is None or waits.empty or not waits["step"].notna().any():
        return pd.DataFrame({name: [] for name in STEP_COLUMNS})
    table = _Waits.of(waits)
    step = table.steps_of_calls()
    num_collectives = _by_group(np.add, step, table.is_last.astype(np.int64))
    skews = _by_group(np.maximum, step, waits["skew_ns"].to_numpy(np.int64))
    causes = _causes(table, step)
    rows = [
        (number, num_collectives[number], skews[number], straggler, waited_ns)
        + causes[number, straggler]
        for number, (straggler, waited_ns) in _stragglers(table, step).items()
    ]
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS))


def _by_group(ufunc: np.ufunc, group: Int64s, values: Int64s) -> dict[int, int]:
    """Return what the values of each group come to, in ascending order of the groups."""
    order = np.argsort(group, kind="stable")
    keys, first = np.unique(group[order], return_index=True)
    return dict(zip(keys.tolist(), ufunc.reduceat(values[order], first).tolist(), strict=True))


def _stragglers(waits: "_Waits", step: Int64s) -> dict[int, tuple[int, int]]:
    """Return of each step the rank that all others waited for longest, and how long."""
    late = np.flatnonzero(waits.is_last & (step >= 0))
    waited_ns, arrived_ns = waits.waited_ns[late], waits.start_ns[late]
    keys, of = np.unique(
        np.stack([step[late], waits.rank[late]], axis=1), axis=0, return_inverse=True
    )
    total = union_of_each_ns(of.reshape(-1), arrived_ns - waited_ns, arrived_ns, len(keys))
    worst: dict[int, tuple[int, int]] = {}
    for (number, own), waited in zip(keys.tolist(), total.tolist(), strict=True):
        if number not in worst or waited > worst[number][1]:
            worst[number] = (own, waited)
    return worst


def _causes(waits: "_Waits", step: Int64s) -> dict[tuple[int, int], tuple[str | None, str | None]]:
    """Return by step and rank why that rank was late: cause and host range, each if it holds for
    half or more of the time that the others waited for it.
    """
    late = np.flatnonzero(waits.is_last & (step >= 0))
    waited = waits.waited_ns[late]
    idle, compute = (
        values[late] - waits.median_of_others(values, late)
        for values in (waits.idle_before_ns, waits.compute_before_ns)
    )
    is_known = (waited > 0) & (np.maximum(idle, compute) >= 0.5 * waited)
    is_there = waits.more_in_range(late) >= 0.5 * waited
    total: Counter[tuple[int, int]] = Counter()
    by_cause: dict[tuple[int, int], Counter[tuple[str, str | None]]] = defaultdict(Counter)
    flags = (is_known.tolist(), (idle >= compute).tolist(), is_there.tolist())
    rows = zip(late.tolist(), step[late].tolist(), waited.tolist(), *flags, strict=True)
    for at, number, ns, known, is_host, there in rows:
        key = number, int(waits.rank[at])
        total[key] += ns
        if known:
            where = (waits.idle_in[at] or None) if there else None
            by_cause[key]["host" if is_host else "compute", where if is_host else None] += ns
    return {key: _main_cause(by_cause[key], ns) for key, ns in total.items()}


def _main_cause(
    by_cause: Counter[tuple[str, str | None]], total_ns: int
) -> tuple[str | None, str | None]:
    for cause in ("host", "compute"):
        of_cause = {where: ns for (name, where), ns in by_cause.items() if name == cause}
        if of_cause and sum(of_cause.values()) >= 0.5 * total_ns:
            where = max(of_cause, key=lambda name: of_cause[name])
            return cause, where if of_cause[where] >= 0.5 * total_ns else None
    return None, None


_WAIT_NUMBERS = (
    *("number", "row", "rank", "start_ns"),
    *("waited_ns", "idle_before_ns", "compute_before_ns", "idle_in_ns"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """Columns of the paired calls, sorted by the number of the collective."""

    number: Int64s
    row: Int64s
    rank: Int64s
    start_ns: Int64s
    step: Int64s
    is_last: Bools
    waited_ns: Int64s
    idle_before_ns: Int64s
    compute_before_ns: Int64s
    idle_in_ns: Int64s
    idle_in: Sequence[str | None]

    @classmethod
    def of(cls, waits: pd.DataFrame) -> Self:
        return cls(
            step=waits["step"].to_numpy(np.int64, na_value=MISSING),
            is_last=waits["last"].to_numpy(bool),
            idle_in=waits["idle_in"].tolist(),
            **{name: waits[name].to_numpy(np.int64) for name in _WAIT_NUMBERS},
        )

    def steps_of_calls(self) -> Int64s:
        """Return the step of each call: that of the lowest rank's part in its collective."""
        order = np.lexsort((self.row, self.number))
        _, first, of_call = np.unique(self.number[order], return_index=True, return_inverse=True)
        step_of = np.empty(len(order), np.int64)
        step_of[order] = self.step[order][first][of_call]
        return step_of

    def more_in_range(self, at: Int64s) -> NDArray[np.float64]:
        """Return how much longer the last ranks of some collectives were in their range of the idle
        time than the other ranks, by the median, were in a range of that name.
        """
        names = {name: code for code, name in enumerate(dict.fromkeys(self.idle_in))}
        code = np.array([names[name] for name in self.idle_in], np.int64)
        last = np.flatnonzero(self.is_last)
        of_last = code[last[np.searchsorted(self.number[last], self.number)]]
        alike = np.where(code == of_last, self.idle_in_ns, 0)
        return self.idle_in_ns[at] - self.median_of_others(alike, at)

    def median_of_others(self, values: Int64s, at: Int64s) -> NDArray[np.float64]:
        """Return, for some calls, the median of a column over the other ranks' parts in each."""
        order = np.lexsort((values, self.number))
        first = np.searchsorted(self.number, self.number[at])
        num_others = np.searchsorted(self.number, self.number[at], side="right") - first - 1
        own = np.empty(len(order), np.int64)
        own[order] = np.arange(len(order))

        def ranked(place: Int64s) -> Int64s:
            return values[order[first + place + (first + place >= own[at])]]

        return (ranked((num_others - 1) // 2) + ranked(num_others // 2)) / 2

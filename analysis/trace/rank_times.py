"""What the ranks of a run did to each other: who waited for whom, and how fast they moved data.

Captures are joined by the rank that each says (else its file's name), collectives are paired over
the ranks, clocks are put on one axis (`rank_clocks`), and only then are ranks compared. A number
that needs two ranks is absent where their clocks could not be joined.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables import CaptureWarning
from analysis.trace.collective_kinds import POINT_TO_POINT, SYNCHRONISING, bus_factor
from analysis.trace.model import Int64s
from analysis.trace.rank_clocks import Clock, ClockSource, SharedEnds, align_clocks
from analysis.trace.rank_numbers import RankPart, missing_ranks, number_ranks, several_jobs
from analysis.trace.rank_waits import (
    pair_calls,
    step_table,
    unpaired_scatter_ns,
    waits_of,
    waits_per_rank,
)
from core.numbers import decimal

JOINED_COLUMNS = (
    "rank",  # int64, from 0: the row's place where no rank is known
    "process",  # int64, in its capture
    "device",  # int64
    "file_name",  # str
    "gpu",  # str or None
    "num_kernels",  # int64
    "kernel_time_ns",  # int64
    "span_ns",  # int64
    "busy_ns",  # int64
    "idle_ns",  # int64, span - busy
    "compute_ns",  # int64
    "communication_ns",  # int64
    "exposed_ns",  # int64
    "exposed_frac",  # Float64, of the span
    "overlap_frac",  # Float64, of communication: what compute covers
    "stage",  # Int64, of a pipeline, from 0; only where sends and receives show one
    "bubble_ns",  # Int64, idle or exposed send and receive; only where ranks are stages
    "wait_ns",  # Int64, in collectives, for the slowest rank
    "late_ns",  # Int64, that all others waited for this rank alone
    "clock",  # str, ClockSource
    "offset_ns",  # Int64
    "drift_ppm",  # Float64
    "residual_ns",  # Float64
)
"""One row per rank, in order of rank."""

KIND_COLUMNS = (
    "kind",  # str
    "group",  # str or None
    "group_size",  # Int64
    "num_bytes",  # Int64, of a call
    "num_calls",  # int64, of all ranks
    "total_ns",  # int64, over all ranks
    "exposed_ns",  # int64, over all ranks
    "median_ns",  # float64, of a call
    "algorithm_gbps",  # Float64, GB/s of the median call
    "bus_gbps",  # Float64
    "wait_ns",  # Int64, over all ranks: for the slowest to start
    "transfer_ns",  # Int64, over all ranks: the rest
    "transfer_bus_gbps",  # Float64, bus bandwidth of the median transfer
)
"""One row for each kind, group and size, longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRanks:
    """All ranks of a run."""

    ranks: pd.DataFrame
    "JOINED_COLUMNS."
    collectives: pd.DataFrame
    "KIND_COLUMNS."
    steps: pd.DataFrame
    "STEP_COLUMNS; empty where clocks are not joined."
    exposed_by_kind: dict[str, float] = field(default_factory=dict)
    "Kind -> mean over ranks of its exposed time's share of the rank's span."
    missing: tuple[int, ...] = ()
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    "File name -> its clock; {} unless collectives join all of them."
    warnings: tuple[CaptureWarning, ...] = ()

    @property
    def is_joined(self) -> bool:
        """Whether all ranks stand on one time axis."""
        return len(self.ranks) > 1 and ClockSource.NONE not in set(self.ranks["clock"])


def join_ranks(parts: Sequence[RankPart]) -> JoinedRanks | None:
    """Return all ranks of a run together; None where no capture has GPU work."""
    parts = [part for part in parts if len(part.ranks)]
    if not parts:
        return None
    ranks = pd.concat(
        [p.ranks.assign(part=i, file_name=p.file_name) for i, p in enumerate(parts)],
        ignore_index=True,
    )
    ranks["stated_rank"] = ranks["rank"]
    ranks["rank"], warnings = number_ranks(ranks, parts)
    ranks = ranks.sort_values(["rank", "device"], kind="stable", ignore_index=True)
    missing, missing_warnings = missing_ranks(ranks)
    calls = _calls(parts, ranks)
    paired = pair_calls(calls, len(ranks))
    strangers = several_jobs(ranks)
    clocks = _apart(ranks) if strangers else _clocks(ranks, calls, paired)
    calls = _on_one_axis(calls, ranks, clocks)
    is_joined = all(clock.source != ClockSource.NONE for clock in clocks)
    waits = waits_of(calls, paired) if is_joined and len(ranks) > 1 else None
    scatter = unpaired_scatter_ns(waits)
    if scatter is not None:
        waits = None
    return JoinedRanks(
        ranks=_rank_table(ranks, clocks, waits, calls),
        collectives=_kind_table(calls, waits, 0 if strangers else len(ranks) + len(missing)),
        steps=step_table(waits),
        exposed_by_kind=_exposed_by_kind(calls, ranks),
        missing=missing,
        clocks=_file_clocks(ranks, clocks),
        warnings=(
            *([] if strangers else [*warnings, *missing_warnings]),
            *(strangers or _clock_warnings(ranks, clocks, scatter)),
        ),
    )


def _apart(ranks: pd.DataFrame) -> list[Clock]:
    """Return clocks that have nothing to do with each other, but for the ranks of one capture."""
    first = ranks["part"].iloc[0]
    return [
        Clock(source=ClockSource.SAME if part == first else ClockSource.NONE)
        for part in ranks["part"].tolist()
    ]


def _calls(parts: Sequence[RankPart], ranks: pd.DataFrame) -> pd.DataFrame:
    """Return the collectives of all ranks with `row`, the row of `ranks` they belong to."""
    frames = []
    for i, part in enumerate(parts):
        process = part.collectives["process"].to_numpy()
        device = part.collectives["device"].to_numpy()
        row = np.full(len(process), -1, np.int64)
        for at in np.flatnonzero(ranks["part"].to_numpy() == i).tolist():
            row[(process == ranks["process"].iat[at]) & (device == ranks["device"].iat[at])] = at
        frames.append(part.collectives.assign(row=row))
    calls = pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)
    return calls.sort_values(["row", "start_ns"], kind="stable", ignore_index=True)


def _clocks(ranks: pd.DataFrame, calls: pd.DataFrame, paired: Int64s) -> list[Clock]:
    """Return the clock of each rank; those of one capture share it."""
    parts = list(dict.fromkeys(ranks["part"].tolist()))
    column = {part: i for i, part in enumerate(parts)}
    origins = [
        None if pd.isna(v) else int(v)
        for v in ranks.drop_duplicates("part")["utc_origin_ns"].tolist()
    ]
    is_sync = calls["kind"].isin(SYNCHRONISING).to_numpy() & (paired >= 0)
    used = np.flatnonzero(is_sync)
    of_row = np.array([column[p] for p in ranks["part"].tolist()], np.int64)
    ends = _shared_ends(
        of_row[calls["row"].to_numpy()[used]], paired[used], calls["end_ns"].to_numpy()[used]
    )
    durations = (calls["end_ns"] - calls["start_ns"]).to_numpy()[used]
    typical = float(np.median(durations)) if len(durations) else 0.0
    clocks = align_clocks(ends, origins, typical)
    return [clocks[column[p]] for p in ranks["part"].tolist()]


def _shared_ends(clock: Int64s, number: Int64s, end_ns: Int64s) -> SharedEnds:
    """Return the ends sorted by clock; of a clock's several ranks the last one's."""
    order = np.lexsort((end_ns, number, clock))
    clock, number, end_ns = clock[order], number[order], end_ns[order]
    is_last = np.ones(len(clock), np.bool_)
    is_last[:-1] = (clock[1:] != clock[:-1]) | (number[1:] != number[:-1])
    return SharedEnds(clock=clock[is_last], number=number[is_last], end_ns=end_ns[is_last])


def _on_one_axis(calls: pd.DataFrame, ranks: pd.DataFrame, clocks: Sequence[Clock]) -> pd.DataFrame:
    start, end = calls["start_ns"].to_numpy().copy(), calls["end_ns"].to_numpy().copy()
    duration = end - start  # on the rank's own clock: a drift changes it
    row = calls["row"].to_numpy()
    bounds = np.searchsorted(row, np.arange(len(ranks) + 1))
    for i, clock in enumerate(clocks):
        mine = slice(bounds[i], bounds[i + 1])
        start[mine], end[mine] = clock.aligned(start[mine]), clock.aligned(end[mine])
    ranks_of = ranks["rank"].to_numpy()
    rank = ranks_of[row] if len(row) else row
    return calls.assign(start_ns=start, end_ns=end, duration_ns=duration, rank=rank)


def _rank_table(
    ranks: pd.DataFrame,
    clocks: Sequence[Clock],
    waits: pd.DataFrame | None,
    calls: pd.DataFrame,
) -> pd.DataFrame:
    stage = stages_of(ranks["rank"].tolist(), _peers(ranks, calls))
    spans, communication = ranks["span_ns"], ranks["communication_ns"]
    columns: dict[str, Any] = {
        **{str(name): ranks[name] for name in ranks.columns},
        "idle_ns": spans - ranks["busy_ns"],
        "exposed_frac": _ratio(ranks["exposed_ns"], spans),
        "overlap_frac": _ratio(communication - ranks["exposed_ns"], communication),
        "stage": pd.array(stage, dtype="Int64"),
        "bubble_ns": _bubbles(ranks, stage),
        "clock": [str(c.source) for c in clocks],
        "offset_ns": pd.array(
            [None if c.source == ClockSource.NONE else c.offset_ns for c in clocks], dtype="Int64"
        ),
        "drift_ppm": pd.array(
            [
                c.drift * 1e6 if c.source in (ClockSource.SAME, ClockSource.COLLECTIVES) else None
                for c in clocks
            ],
            dtype="Float64",
        ),
        "residual_ns": pd.array([c.residual_ns for c in clocks], dtype="Float64"),
        **_waited(waits, len(ranks)),
    }
    return pd.DataFrame({name: columns[name] for name in JOINED_COLUMNS})


def _peers(ranks: pd.DataFrame, calls: pd.DataFrame) -> dict[int, set[int]]:
    """Return rank -> the ranks it sends to or receives from."""
    peers: dict[int, set[int]] = {}
    is_sent = (calls["kind"] == POINT_TO_POINT).to_numpy()
    if not is_sent.any():
        return peers
    sent = calls[is_sent & calls["peer"].notna().to_numpy()]
    for row, peer in sent[["row", "peer"]].drop_duplicates().itertuples(index=False):
        own = int(ranks["rank"].iat[row])
        if own != peer:
            peers.setdefault(own, set()).add(int(peer))
            peers.setdefault(int(peer), set()).add(own)
    return peers


def stages_of(ranks: Sequence[int], peers: Mapping[int, set[int]]) -> list[int | None]:
    """Return the stage of each rank in its pipeline: a chain of ranks that talk to neighbours.

    Closed to a ring where a pipeline is interleaved. A chain is counted from its end with the lower
    rank, a ring from its lowest rank towards that one's lower neighbour. None for what talks to
    more than two others: that is an exchange, no pipeline.
    """
    stage: dict[int, int] = {}
    seen: set[int] = set()
    for start in sorted(peers):
        if start in seen:
            continue
        chain, reached = [start], {start}
        while chain:
            new = peers[chain.pop()] - reached
            reached |= new
            chain += sorted(new)
        seen |= reached
        if any(len(peers[rank]) > 2 for rank in reached):
            continue
        ends = [rank for rank in sorted(reached) if len(peers[rank]) == 1]
        rank, number = min(ends or reached), 0
        while rank not in stage:
            stage[rank] = number
            rank = min(peers[rank] - stage.keys(), default=rank)
            number += 1
    return [stage.get(rank) for rank in ranks]


def _bubbles(ranks: pd.DataFrame, stage: Sequence[int | None]) -> Any:
    """Return each rank's time in the bubbles of a pipeline; missing where it is in none.

    Idle time of its GPU, and sends and receives that no compute covers: both wait for a stage.
    """
    bubble_ns = ranks["span_ns"] - ranks["busy_ns"] + ranks["exposed_sends_ns"]
    return bubble_ns.astype("Int64").where([s is not None for s in stage])


def _ratio(part: pd.Series, whole: pd.Series) -> Any:
    """Return the share of each whole; missing for a whole of nothing."""
    parts, wholes = part.to_numpy(np.float64), whole.to_numpy(np.float64)
    known = wholes > 0
    shares = np.divide(parts, wholes, out=np.zeros(len(parts)), where=known)
    return pd.arrays.FloatingArray(shares, ~known)


def _waited(waits: pd.DataFrame | None, num_ranks: int) -> dict[str, Any]:
    names = ("wait_ns", "late_ns")
    if waits is None or waits.empty:
        return {name: pd.array([None] * num_ranks, dtype="Int64") for name in names}
    each = zip(names, waits_per_rank(waits, num_ranks), strict=True)
    return {name: pd.array(values, dtype="Int64") for name, values in each}


def _kind_table(calls: pd.DataFrame, waits: pd.DataFrame | None, num_ranks: int) -> pd.DataFrame:
    """Return the collectives by kind, group and size."""
    if calls.empty:
        return _no_kinds().copy()
    rows = []
    of_group = ["kind", "group", "group_size", "num_bytes"]
    grouped = {}
    if waits is not None:
        grouped = {_plain(k): frame for k, frame in waits.groupby(of_group, dropna=False)}
    for key, mine in calls.groupby(of_group, dropna=False, sort=False):
        kind, group, size, num_bytes = _plain(key)
        median_ns = float(mine["duration_ns"].median())
        num = int(size) if size is not None else None
        row: dict[str, Any] = {
            "kind": kind,
            "group": group,
            "group_size": num,
            "num_bytes": num_bytes,
            "num_calls": len(mine),
            "total_ns": int(mine["duration_ns"].sum()),
            "exposed_ns": int(mine["exposed_ns"].sum()),
            "median_ns": median_ns,
            **_bandwidth(str(kind), num_bytes, num or num_ranks, median_ns),
        }
        waited = grouped.get(_plain(key))
        if waited is not None:
            transfer = (waited["duration_ns"] - waited["wait_ns"]).to_numpy()
            fast = _bandwidth(str(kind), num_bytes, num or num_ranks, float(np.median(transfer)))
            row |= {
                "wait_ns": int(waited["wait_ns"].sum()),
                "transfer_ns": int(transfer.sum()),
                "transfer_bus_gbps": fast.get("bus_gbps"),
            }
        rows.append(row)
    table = pd.DataFrame(rows, columns=list(KIND_COLUMNS)).astype(_KIND_TYPES)
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


_KIND_TYPES: Any = {
    **dict.fromkeys(("group_size", "num_bytes", "wait_ns", "transfer_ns"), "Int64"),
    **dict.fromkeys(("algorithm_gbps", "bus_gbps", "transfer_bus_gbps"), "Float64"),
    **dict.fromkeys(("num_calls", "total_ns", "exposed_ns"), "int64"),
}


@cache
def _no_kinds() -> pd.DataFrame:
    return pd.DataFrame([], columns=list(KIND_COLUMNS)).astype(_KIND_TYPES)


def _plain(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a group's key with None for what is missing: NA and NaN are equal to nothing."""
    return tuple(None if pd.isna(v) else v for v in key)


def _bandwidth(
    kind: str, num_bytes: int | None, num_ranks: int, time_ns: float
) -> dict[str, float]:
    """Return algorithm and bus bandwidth in GB/s; {} where the size is unknown."""
    if num_bytes is None or time_ns <= 0 or num_ranks < 2:
        return {}
    algorithm = num_bytes / time_ns
    return {"algorithm_gbps": algorithm, "bus_gbps": algorithm * bus_factor(kind, num_ranks)}


def _exposed_by_kind(calls: pd.DataFrame, ranks: pd.DataFrame) -> dict[str, float]:
    if calls.empty:
        return {}
    share = calls["exposed_ns"] / ranks["span_ns"].to_numpy()[calls["row"].to_numpy()]
    sums = share.groupby(calls["kind"]).sum() / len(ranks)
    return {str(k): float(v) for k, v in sums.sort_values(ascending=False).items()}


def _file_clocks(ranks: pd.DataFrame, clocks: Sequence[Clock]) -> dict[str, Clock]:
    trusted = (ClockSource.SAME, ClockSource.COLLECTIVES)
    if ranks["part"].nunique() < 2 or any(clock.source not in trusted for clock in clocks):
        return {}
    return dict(zip(ranks["file_name"].tolist(), clocks, strict=True))


def _clock_warnings(
    ranks: pd.DataFrame, clocks: Sequence[Clock], scatter_ns: float | None
) -> list[CaptureWarning]:
    if scatter_ns is not None:
        message = (
            f"collectives that should be the same end {decimal(scatter_ns / 1e6, 3)} ms apart on "
            "different ranks: they were not recorded whole, so waiting for the slowest rank is "
            "not known"
        )
        return [CaptureWarning(code="collectives_not_paired", message=message)]
    apart = sorted({r for r, c in zip(ranks["rank"], clocks, strict=True) if c.source == "none"})
    if not apart:
        return []
    message = (
        f"ranks {', '.join(map(str, apart[:10]))} share no clock and no collective with rank "
        f"{ranks['rank'].iloc[0]}: each stands on a time axis of its own, and no number that needs "
        "two ranks is given"
    )
    return [CaptureWarning(code="ranks_not_aligned", message=message)]

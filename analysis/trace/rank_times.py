"""What the ranks of a run did to each other: who waited for whom, and how fast they moved data.

Captures are joined by the rank that each says (else its file's name), collectives are paired over
the ranks, clocks are put on one axis (`rank_clocks`), and only then are ranks compared. A number
that needs two ranks is absent where their clocks could not be joined.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import numpy as np
import pandas as pd

from analysis.tables import CaptureWarning
from analysis.trace.collectives import POINT_TO_POINT, SYNCHRONISING, bus_factor
from analysis.trace.model import MISSING, Bools, Int64s
from analysis.trace.rank_clocks import (
    Clock,
    ClockSource,
    SharedEnds,
    align_clocks,
    most_scatter_ns,
)
from core.numbers import decimal


def _numbers_after(*words: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(rf"(?i)(?<![a-z])(?:{w})[ _\-=]?(\d{{1,5}})(?!\d)") for w in words)


_RANK_IN_NAME = _numbers_after("rank", "worker|gpu", "tp")
"""What names call a rank, the clearest first: servers name files by tensor-parallel rank."""
_ONLY_RANK_IN_NAME = _numbers_after("rank", "worker")
"""Those that never say how many ranks there were."""


MAX_JOB_RANKS = 1 << 17
"""No job is larger: a number beyond it is damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """One capture's ranks, as its file was read."""

    file_name: str
    ranks: pd.DataFrame
    "RANK_COLUMNS of `trace.ranks`."
    collectives: pd.DataFrame
    "COLLECTIVE_COLUMNS."
    rank: int | None = None
    "Of the whole file, as a manifest says."


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

STEP_COLUMNS = (
    "step",  # int64
    "num_collectives",  # int64
    "skew_ns",  # int64, largest time between the first and the last rank's arrival
    "straggler",  # int64, the rank that all others waited for longest
    "waited_ns",  # int64, that they waited for it
    "cause",  # str or None: `host` (its GPU was idle) or `compute` (its kernels took longer)
    "where",  # str or None: the innermost host range of that idle time
)
"""One row per step with collectives of several ranks."""


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


def rank_in_name(file_name: str, *, sizes_too: bool = True) -> int | None:
    """Return the rank that a file's name says (`rank0`, `worker2`, `TP-3`); None if none.

    Without `sizes_too` words that may as well count the ranks (`gpu4`, `tp8`) say nothing.
    """
    patterns = _RANK_IN_NAME if sizes_too else _ONLY_RANK_IN_NAME
    numbers = next((names for p in patterns if (names := p.findall(file_name))), None)
    return int(numbers[-1]) if numbers else None


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
    ranks["rank"], warnings = _numbered(ranks, parts)
    ranks = ranks.sort_values(["rank", "device"], kind="stable", ignore_index=True)
    missing, missing_warnings = _missing(ranks)
    calls = _calls(parts, ranks)
    paired = _pair(calls, len(ranks))
    strangers = _of_several_jobs(ranks)
    clocks = _apart(ranks) if strangers else _clocks(ranks, calls, paired)
    calls = _on_one_axis(calls, ranks, clocks)
    is_joined = all(clock.source != ClockSource.NONE for clock in clocks)
    waits = _waits(calls, paired) if is_joined and len(ranks) > 1 else None
    scatter = _unpaired(waits)
    if scatter is not None:
        waits = None
    return JoinedRanks(
        ranks=_rank_table(ranks, clocks, waits, calls),
        collectives=_kind_table(calls, waits, 0 if strangers else len(ranks) + len(missing)),
        steps=_step_table(waits),
        exposed_by_kind=_exposed_by_kind(calls, ranks),
        missing=missing,
        clocks=_file_clocks(ranks, clocks),
        warnings=(
            *([] if strangers else [*warnings, *missing_warnings]),
            *(strangers or _clock_warnings(ranks, clocks, scatter)),
        ),
    )


def _numbered(
    ranks: pd.DataFrame, parts: Sequence[RankPart]
) -> tuple[Int64s, list[CaptureWarning]]:
    """Return the rank of each row: from the capture, a manifest, a file's name, else its place."""
    alone = ranks.groupby("part")["device"].transform("size").to_numpy() == 1
    of_part = [_rank_of_file(part, is_only=len(parts) == 1) for part in parts]
    named = [of_part[i] for i in ranks["part"].tolist()]
    given = [None if pd.isna(r) else int(r) for r in ranks["rank"].tolist()]
    in_names = [
        own if own is not None else (name if is_alone else None)
        for own, name, is_alone in zip(given, named, alone.tolist(), strict=True)
    ]
    known = [r for r in in_names if r is not None]
    if len(known) == len(in_names) and len(set(known)) == len(known):
        return np.array(in_names, np.int64), []
    warnings = []
    by_gpu = _by_gpu(ranks) if not known else None
    if by_gpu is not None:
        message = f"no capture says its rank: the {len(ranks)} ranks are numbered as their GPUs are"
        return by_gpu, [CaptureWarning(code="ranks_assumed", message=message)]
    if len(ranks) > 1:
        twice = sorted({r for r in known if known.count(r) > 1})
        why = f"rank {twice[0]} is met twice" if twice else "not every capture says its rank"
        message = f"{why}: the {len(ranks)} ranks are numbered in the order of files and GPUs"
        warnings.append(CaptureWarning(code="ranks_assumed", message=message))
    return np.arange(len(ranks), dtype=np.int64), warnings


def _rank_of_file(part: RankPart, *, is_only: bool) -> int | None:
    """Return the rank that a manifest or the file's name says; None if neither.

    One file that calls nobody is no rank because its name counts GPUs: `gpu4.sqlite`, `tp8.json`.
    """
    if part.rank is not None:
        return part.rank
    calls_others = not is_only or len(part.collectives) > 0
    return rank_in_name(part.file_name, sizes_too=calls_others)


def _by_gpu(ranks: pd.DataFrame) -> Int64s | None:
    """Return the GPUs of captures that each hold another one, from 0 on; None for others."""
    device = ranks["device"].to_numpy(np.int64)
    if ranks["part"].nunique() < 2 or sorted(device.tolist()) != list(range(len(device))):
        return None
    return device


def _of_several_jobs(ranks: pd.DataFrame) -> list[CaptureWarning]:
    """Warn that the captures are not of one job and time; [] if they may be.

    One rank that two captures claim to hold, or jobs of different sizes.
    """
    if len(ranks) == 1:
        return []
    sizes = ranks.dropna(subset=["world_size"]).drop_duplicates("world_size")
    claims = ranks.drop_duplicates(["part", "stated_rank"]).dropna(subset=["stated_rank"])
    twice = claims[claims.duplicated("stated_rank", keep=False)].sort_values("stated_rank")
    if len(twice):
        rank = int(twice["stated_rank"].iloc[0])
        names = twice[twice["stated_rank"] == rank]["file_name"].tolist()
        clash = f"{names[0]} and {names[1]} both hold rank {rank}"
    elif len(sizes) > 1:
        first, second = sizes.to_dict("records")[:2]
        clash = (
            f"{first['file_name']} is of a job of {first['world_size']} ranks and "
            f"{second['file_name']} of one of {second['world_size']}"
        )
    else:
        return []
    message = (
        f"{clash}: these are several jobs, or several recordings of one. No number that needs two "
        "ranks is given; import the files of each as a run of its own"
    )
    return [CaptureWarning(code="several_jobs", message=message)]


def _apart(ranks: pd.DataFrame) -> list[Clock]:
    """Return clocks that have nothing to do with each other, but for the ranks of one capture."""
    first = ranks["part"].iloc[0]
    return [
        Clock(source=ClockSource.SAME if part == first else ClockSource.NONE)
        for part in ranks["part"].tolist()
    ]


def _missing(ranks: pd.DataFrame) -> tuple[tuple[int, ...], list[CaptureWarning]]:
    """Return the ranks of the job that no capture holds."""
    known = set(ranks["rank"].tolist())
    sizes = [int(s) for s in pd.concat([ranks["world_size"], ranks["largest_group"]]).dropna()]
    size = max([s for s in (*sizes, max(known) + 1) if s <= MAX_JOB_RANKS], default=0)
    if len(ranks) == 1 and size == 1:
        return (), []
    missing = tuple(r for r in range(size) if r not in known)
    if not missing:
        return (), []
    shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
    subject = f"rank {shown} of {size} is" if len(missing) == 1 else f"ranks {shown} of {size} are"
    message = f"{subject} not here: waiting for the slowest rank is a lower bound"
    return missing, [CaptureWarning(code="ranks_missing", message=message)]


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


def _pair(calls: pd.DataFrame, num_ranks: int) -> Int64s:
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


def _waits(calls: pd.DataFrame, paired: Int64s) -> pd.DataFrame:
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


def _unpaired(waits: pd.DataFrame | None) -> float | None:
    """Return the spread [ns] of ends within one collective, if too large.

    None can finish before all have started, so ends that scatter belong to different collectives.
    """
    if waits is None or waits.empty:
        return None
    ends = waits.groupby("number")["end_ns"]
    scatter = float((ends.max() - ends.min()).median())
    typical = float(waits["duration_ns"].median())
    return scatter if scatter > most_scatter_ns(typical) else None


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
        "bubble_ns": _bubbles(ranks, calls, stage),
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
        "wait_ns": _per_rank(waits, "wait_ns", len(ranks)),
        "late_ns": _per_rank(waits, "waited_ns", len(ranks)),
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


def _bubbles(ranks: pd.DataFrame, calls: pd.DataFrame, stage: Sequence[int | None]) -> Any:
    """Return each rank's time in the bubbles of a pipeline; missing where it is in none.

    Idle time of its GPU, and sends and receives that no compute covers: both wait for a stage.
    """
    if all(s is None for s in stage):
        return pd.array([None] * len(ranks), dtype="Int64")
    sent = calls[calls["kind"] == POINT_TO_POINT].groupby("row")["exposed_ns"].sum()
    bubble_ns = (ranks["span_ns"] - ranks["busy_ns"]).astype("Int64") + sent.reindex(ranks.index)
    return bubble_ns.astype("Int64").where([s is not None for s in stage])


def _ratio(part: pd.Series, whole: pd.Series) -> Any:
    """Return the share of each whole; missing for a whole of nothing."""
    parts, wholes = part.to_numpy(np.float64), whole.to_numpy(np.float64)
    known = wholes > 0
    shares = np.divide(parts, wholes, out=np.zeros(len(parts)), where=known)
    return pd.arrays.FloatingArray(shares, ~known)


def _per_rank(waits: pd.DataFrame | None, name: str, num_ranks: int) -> Any:
    if waits is None or waits.empty:
        return pd.array([None] * num_ranks, dtype="Int64")
    total = np.zeros(num_ranks, np.int64)
    np.add.at(total, waits["row"].to_numpy(), waits[name].to_numpy().astype(np.int64))
    return pd.array(total, dtype="Int64")


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


def _step_table(waits: pd.DataFrame | None) -> pd.DataFrame:
    """Return skew and straggler of each step; the step is that of the lowest rank of the call."""
    if waits is None or waits.empty or not waits["step"].notna().any():
        return pd.DataFrame({name: [] for name in STEP_COLUMNS})
    table = _Waits.of(waits)
    step = table.steps_of_calls()
    num_collectives = _by_group(np.add, step, table.is_last.astype(np.int64))
    skews = _by_group(np.maximum, step, waits["skew_ns"].to_numpy(np.int64))
    rows = [
        (number, num_collectives[number], skews[number], straggler, waited_ns, *table.cause(latest))
        for number, (straggler, waited_ns, latest) in _stragglers(table, step).items()
    ]
    return pd.DataFrame(rows, columns=list(STEP_COLUMNS))


def _by_group(ufunc: np.ufunc, group: Int64s, values: Int64s) -> dict[int, int]:
    """Return what the values of each group come to, in ascending order of the groups."""
    order = np.argsort(group, kind="stable")
    keys, first = np.unique(group[order], return_index=True)
    return dict(zip(keys.tolist(), ufunc.reduceat(values[order], first).tolist(), strict=True))


def _stragglers(waits: "_Waits", step: Int64s) -> dict[int, tuple[int, int, int]]:
    """Return of each step the rank that all others waited for longest, how long, and its latest
    call: the one that was waited for longest.
    """
    late = np.flatnonzero(waits.is_last & (step >= 0))
    rank, waited_ns = waits.rank[late], waits.waited_ns[late]
    blame: dict[tuple[int, int], int] = {}
    latest: dict[tuple[int, int], int] = {}
    for at, key in enumerate(zip(step[late].tolist(), rank.tolist(), strict=True)):
        blame[key] = blame.get(key, 0) + int(waited_ns[at])
        if key not in latest or waited_ns[at] > waits.waited_ns[latest[key]]:
            latest[key] = int(late[at])
    worst: dict[int, tuple[int, int, int]] = {}
    for (number, own), total in sorted(blame.items()):
        if number not in worst or total > worst[number][1]:
            worst[number] = (own, total, latest[number, own])
    return worst


_WAIT_NUMBERS = ("number", "row", "rank", "waited_ns", "idle_before_ns", "compute_before_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """Columns of the paired calls, sorted by the number of the collective."""

    number: Int64s
    row: Int64s
    rank: Int64s
    step: Int64s
    is_last: Bools
    waited_ns: Int64s
    idle_before_ns: Int64s
    compute_before_ns: Int64s
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

    def cause(self, at: int) -> tuple[str | None, str | None]:
        """Return what delayed a rank before the collective at which it was last."""
        first, last = np.searchsorted(self.number, [self.number[at], self.number[at] + 1])
        others = first + np.flatnonzero(self.row[first:last] != self.row[at])
        if not len(others) or self.waited_ns[at] <= 0:
            return None, None
        idle, compute = (
            float(values[at] - np.median(values[others]))
            for values in (self.idle_before_ns, self.compute_before_ns)
        )
        if max(idle, compute) < 0.5 * self.waited_ns[at]:
            return None, None
        return ("host", self.idle_in[at] or None) if idle >= compute else ("compute", None)


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

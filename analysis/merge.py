"""Several captures of one pass as one: which tables count, and how their numbers add up.

The rules: counts and times are summed over captures (ranks, devices), a peak is the largest. Clocks
of different captures may differ (`analysis.clocks`), so the span is the sum of their spans and the
idle fraction is 1 - busy / span of those sums. A vendor's CSV only fills in what no capture with
the records gives. The same capture in a second form (`.nsys-rep` beside its `.sqlite`, raw page
beside details page) is recognised by equal contents and counted once.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.clocks import are_aligned, on_one_clock, session_starts
from analysis.rundata import PassWarning, RunCapture, pass_warning
from analysis.shift import raised
from analysis.span_file import SpanFile
from analysis.tables import FRAMES, CaptureKind, CaptureTables
from analysis.trace.rank_clocks import Clock
from core.states import Pass

SUMMED = (
    "num_kernels",
    "kernel_time_ns",
    "busy_ns",
    "span_ns",
    "opaque_graph_ns",
    "num_graph_launches",
    "num_launches_without_kernel",
    "num_kernels_without_launch",
)
_REPORT_KINDS = frozenset({CaptureKind.NSYS_CSV})
MAX_SHOWN = 8
"""Files of which a message gives the clock."""


def merged_captures(
    captures: Sequence[RunCapture], clocks: Mapping[str, Clock] | None = None
) -> tuple[tuple[RunCapture, ...], tuple[PassWarning, ...]]:
    """Return the captures with the tables that count, and what was left out as warnings.

    `clocks`: see `analysis.clocks.on_one_clock`.
    """
    kept: list[RunCapture] = []
    contents: list[_Content] = []
    offsets: dict[tuple[str, str], int] = {}
    warnings: list[PassWarning] = []
    for capture in sorted(captures, key=_fullness):
        content = _Content.of(capture)
        earlier = [c for c in kept if c.pass_name == capture.pass_name]
        at = next((i for i, c in enumerate(contents) if c.is_same(content)), None)
        twin = None if at is None else kept[at]
        if at is not None and twin is not None and capture.pass_name == Pass.NCU:
            kept[at] = replace(twin, tables=_filled(twin.tables, capture.tables))
            contents[at] = _Content.of(kept[at])
        if twin is not None:
            if capture.process != twin.process:  # else two forms that one pass wrote itself
                warnings.append(_counted_once(capture, twin))
            capture = replace(capture, tables=_without(capture.tables, FRAMES))
        elif capture.tables.kind in _REPORT_KINDS:
            given = [n for n in FRAMES if any(_has(c.tables, n) for c in earlier if _records(c))]
            capture = replace(capture, tables=_without(capture.tables, given))
        kept.append(_apart(capture, offsets))
        contents.append(_Content.of(kept[-1]))
    warnings += _several(kept, clocks or {})
    kept, alone = _with_sizes(kept)
    return tuple(on_one_clock(kept, clocks)), (*warnings, *alone)


def _with_sizes(captures: Sequence[RunCapture]) -> tuple[list[RunCapture], list[PassWarning]]:
    """Put the sizes of copies, from a report of sizes alone, beside the times of another report.

    `nsys stats -o` writes the two into files of their own. Sizes without times are left out.
    """
    sizes = {c.pass_name: c.tables.transfers for c in captures if _has_sizes_alone(c.tables)}
    kept: list[RunCapture] = []
    alone: list[PassWarning] = []
    for capture in captures:
        tables, size = capture.tables, sizes.get(capture.pass_name)
        if _has_sizes_alone(tables):
            tables = replace(tables, transfers=None)
            if not any(_takes_sizes(c.tables, size) for c in captures):
                message = f"{capture.file_name} has the sizes of copies without their times: left "
                message += "out. Import the report cuda_gpu_mem_time_sum together with it"
                alone.append(pass_warning(capture.pass_name, "sizes_without_times", message))
        elif size is not None and _takes_sizes(tables, size):
            assert tables.transfers is not None
            num_bytes = tables.transfers["kind"].map(size.set_index("kind")["bytes"])
            transfers = tables.transfers.assign(bytes=num_bytes.astype("Int64"))
            tables = replace(tables, transfers=transfers)
        kept.append(replace(capture, tables=tables))
    return kept, alone


def _has_sizes_alone(tables: CaptureTables) -> bool:
    frame = tables.transfers
    return frame is not None and len(frame) > 0 and bool(frame["total_ns"].isna().all())


def _takes_sizes(tables: CaptureTables, sizes: pd.DataFrame | None) -> bool:
    """Say whether a report of times counts the same copies as one of sizes."""
    frame = tables.transfers
    if sizes is None or frame is None or tables.kind not in _REPORT_KINDS or not len(frame):
        return False
    is_bare = bool(frame["bytes"].isna().all()) and not frame["total_ns"].isna().any()
    counts = [dict(zip(f["kind"], f["count"], strict=True)) for f in (frame, sizes)]
    return is_bare and counts[0] == counts[1]


def _several(captures: Sequence[RunCapture], clocks: Mapping[str, Clock]) -> Iterator[PassWarning]:
    """Say which captures were added up, how their clocks stand, and whether their GPUs differ."""
    for pass_name in dict.fromkeys(c.pass_name for c in captures):
        added = [c for c in captures if c.pass_name == pass_name and c.tables.summary]
        if len(added) > 1 and pass_name in (Pass.NSYS, Pass.TRACE):
            message = f"{len(added)} captures of one run are added up: {_clocks(added, clocks)}"
            yield pass_warning(pass_name, "captures_added_up", message)
    named = {str(c.tables.gpu["name"]) for c in captures if c.tables.gpu.get("name")}
    if len(named) > 1:
        message = f"the captures name different GPUs ({', '.join(sorted(named))})"
        yield pass_warning("", "different_gpus", f"{message}: figures of the run mix them")


def _clocks(captures: Sequence[RunCapture], clocks: Mapping[str, Clock]) -> str:
    joined = [clocks[c.file_name] for c in captures if c.file_name in clocks]
    residuals = [c.residual_ns for c in joined if c.residual_ns is not None]
    if len(joined) == len(captures) and residuals:
        return (
            "the ends of the collectives that they share put them on one time axis, to "
            f"{max(residuals) / 1e3:.1f} us; span and idle time are summed over them"
        )
    known = session_starts(captures)
    own = "each keeps its own time axis, and span and idle time are summed over them"
    if known is None:
        return f"they hold no common clock, so {own}"
    first = min(known)
    if are_aligned(captures):
        own = "they are put on one time axis by it; span and idle time are summed over them"
    pairs = sorted((s - first, c.file_name) for s, c in zip(known, captures, strict=True))
    later = ", ".join(f"{name} +{ns / 1e9:.3f} s" for ns, name in pairs[:MAX_SHOWN])
    if len(pairs) > MAX_SHOWN:
        later += f", ... {pairs[-1][1]} +{pairs[-1][0] / 1e9:.3f} s"
    return f"by UTC their sessions began at {later}; {own}"


def pass_summary(captures: Sequence[RunCapture]) -> dict[str, int | float]:
    """Return the summary of one pass's captures by the rules of this module."""
    counted = [c.tables for c in captures if c.tables.summary]
    if len(counted) == 1:
        return dict(counted[0].summary)
    merged: dict[str, int | float] = {}
    for name in SUMMED:
        values = [t.summary[name] for t in counted if name in t.summary]
        if values:
            merged[name] = sum(values)
    peaks = [t.summary["peak_memory_bytes"] for t in counted if "peak_memory_bytes" in t.summary]
    if peaks:
        merged["peak_memory_bytes"] = max(peaks)
    if merged.get("span_ns") and "busy_ns" in merged:
        merged["idle_frac"] = 1 - merged["busy_ns"] / merged["span_ns"]
    return merged


def _fullness(capture: RunCapture) -> tuple[bool, int]:
    """Order captures with records before reports, and those with more counters first.

    ncu's raw page has more digits and more metrics than its details page of the same launches.
    """
    counters = capture.tables.counters
    num_known = 0 if counters is None else int(counters.notna().sum().sum())
    return capture.tables.kind in _REPORT_KINDS, -num_known


def _records(capture: RunCapture) -> bool:
    return capture.tables.kind not in _REPORT_KINDS


def _has(tables: CaptureTables, name: str) -> bool:
    frame = getattr(tables, name)
    return frame is not None and len(frame) > 0


@dataclass(frozen=True, slots=True)
class _Content:
    """What tells whether two captures hold the same measurement; read once, compared often."""

    pass_name: str
    launches: list[tuple[Any, ...]] | None
    places: list[tuple[int | None, int, int]] | None
    totals: tuple[Any, ...]
    kernels: list[tuple[int, int]]

    @classmethod
    def of(cls, capture: RunCapture) -> Self:
        tables = capture.tables
        fields = ("num_kernels", "kernel_time_ns", "span_ns", "busy_ns")
        return cls(
            capture.pass_name,
            _launches(tables) if _has(tables, "counters") else None,
            _rank_places(tables) if _has(tables, "ranks") else None,
            tuple(tables.summary.get(f) for f in fields),
            _kernel_sums(tables),
        )

    def is_same(self, other: "_Content") -> bool:
        if self.pass_name != other.pass_name:
            return False
        if self.launches is not None and other.launches is not None:
            return self.launches == other.launches
        if self.totals != other.totals or None in self.totals or not self.totals[0]:
            return False
        if self.kernels != other.kernels:
            return False
        return self.places is None or other.places is None or self.places == other.places


def _rank_places(tables: CaptureTables) -> list[tuple[int | None, int, int]]:
    """Return rank, GPU and first start of a capture's ranks: two may do the very same."""
    assert tables.ranks is not None
    ranks = [None if pd.isna(rank) else int(rank) for rank in tables.ranks["rank"]]
    columns = (tables.ranks[name].tolist() for name in ("device", "start_ns"))
    return list(zip(ranks, *columns, strict=True))


def _kernel_sums(tables: CaptureTables) -> list[tuple[int, int]]:
    """Return count and time of each kernel, sorted: names differ by the form of a capture."""
    if not _has(tables, "kernels"):
        return []
    frame = tables.kernels
    assert frame is not None
    return sorted(zip(frame["count"].tolist(), frame["total_ns"].tolist(), strict=True))


def _launches(tables: CaptureTables) -> list[tuple[Any, ...]]:
    frame = tables.counters
    assert frame is not None
    return list(zip(frame["short_name"], frame["grid"], frame["block"], strict=True))


def _filled(first: CaptureTables, second: CaptureTables) -> CaptureTables:
    """Return the first capture's counters with gaps filled from the second of the same launches."""
    assert first.counters is not None and second.counters is not None
    counters = first.counters.reset_index(drop=True)
    other = second.counters.reset_index(drop=True)
    for name in counters.columns:
        counters[name] = counters[name].where(counters[name].notna(), other[name])
    rules = first.rules if _has(first, "rules") else second.rules
    return replace(first, counters=counters, rules=rules, counter_details=_details(first, second))


def _details(first: CaptureTables, second: CaptureTables) -> pd.DataFrame | None:
    """Return the figures of both, those of the first where both have one."""
    both = [f for f in (first.counter_details, second.counter_details) if f is not None and len(f)]
    if not both:
        return first.counter_details
    joined = pd.concat(both, ignore_index=True)
    return joined.drop_duplicates(["launch", "group", "name"], ignore_index=True)


def _without(tables: CaptureTables, names: Collection[str]) -> CaptureTables:
    nothing: dict[str, Any] = dict.fromkeys(names)
    covers_kernels = "kernels" in names
    summary = {} if covers_kernels else tables.summary
    spans = None if covers_kernels else tables.spans
    ranges = None if covers_kernels else tables.ranges
    if covers_kernels:
        nothing |= {"ranks": None, "collectives": None, "host": None}
    return replace(tables, **nothing, summary=summary, spans=spans, ranges=ranges)


def _apart(capture: RunCapture, offsets: dict[tuple[str, str], int]) -> RunCapture:
    """Number processes and launches after those of the earlier captures of the pass.

    `offsets`: the first free number by pass and table; raised by those of this capture.
    """
    changes: dict[str, Any] = {}
    shift = capture.shift
    for names, column in _NUMBERED:
        given = {n: getattr(capture.tables, n) for n in names if _has(capture.tables, n)}
        if not given:
            continue
        key = (capture.pass_name, names[0])
        offset = offsets.get(key, 0)
        if offset:
            changes |= {n: raised(records, column, offset) for n, records in given.items()}
        if column == "process":
            shift = replace(shift, first_process=offset)
        largest = max(_largest(records, column) for records in given.values())
        offsets[key] = max(offset, offset + largest + 1)
    if not changes:
        return capture
    return replace(capture, tables=replace(capture.tables, **changes), shift=shift)


_NUMBERED = (
    (("phases", "spans", "ranges", "host", "steps"), "process"),
    (("counters", "rules", "counter_details"), "launch"),
    (("counter_sources",), "launch"),
)


_Records: TypeAlias = pd.DataFrame | pa.Table | SpanFile


def _largest(records: _Records, column: str) -> int:
    if isinstance(records, SpanFile):
        return records.greatest(column)
    if isinstance(records, pa.Table):
        return int(pc.max(records[column]).as_py() or 0)
    return int(records[column].max())


def _counted_once(capture: RunCapture, twin: RunCapture) -> PassWarning:
    message = (
        f"{capture.file_name} holds the same measurement as {twin.file_name}: it is counted once"
    )
    return pass_warning(capture.pass_name, "duplicate_capture", message)

"""Read an Nsight Systems SQLite export (2021.3 to 2026.2) into tables."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_calls import ApiCalls, load_api_calls
from analysis.readers.nsys_columns import MAX_TIME_NS, num_of_other_types
from analysis.readers.nsys_events import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    GpuOps,
    Quarantine,
    load_gpu_ops,
    without_recorded_graphs,
)
from analysis.readers.nsys_facts import Facts, gpu_of, load_facts
from analysis.readers.nsys_gaps import gaps_frame
from analysis.readers.nsys_launches import GpuWork, join_work
from analysis.readers.nsys_memory import MemoryUse, load_memory
from analysis.readers.nsys_names import api_name, load_names
from analysis.readers.nsys_nesting import RangeTree, build_tree
from analysis.readers.nsys_nvtx import load_ranges
from analysis.readers.nsys_pass import pass_over
from analysis.readers.nsys_phases import phases
from analysis.readers.nsys_result_warnings import (
    attribution_warnings,
    failed_call_warnings,
    memory_warnings,
)
from analysis.readers.nsys_spans import ranges_table
from analysis.readers.nsys_summary import device_rows, summarise
from analysis.readers.nsys_tables import (
    api_calls_frame,
    is_failed,
    is_launch_call,
    is_waiting_call,
    kernels_frame,
    transfers_frame,
)
from analysis.readers.nsys_warnings import (
    file_warnings,
    graph_warnings,
    launches_without_work,
    lost_graph_launches,
    name_warnings,
    no_activity_warning,
    range_warnings,
    repeated_kernels_warning,
    window_warning,
    work_warnings,
)
from analysis.tables import CaptureKind, CaptureTables, CaptureWarning
from captures.nsys_database import NsysDatabase, open_nsys
from captures.nsys_structure import DAMAGED
from core.errors import CaptureError

MAX_SUM_NS = float(1 << 62)
SESSION_SLACK_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """Everything read from the file, joined."""

    facts: Facts
    quarantine: Quarantine
    calls: ApiCalls
    work: GpuWork
    tree: RangeTree
    memory: MemoryUse
    names: dict[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallKinds:
    """What the kinds of calls are for."""

    failed: NDArray[np.bool_]
    is_launch: NDArray[np.bool_]
    is_graph: NDArray[np.bool_]
    launches_one: NDArray[np.bool_]
    "One kernel each: neither a graph nor a launch on several devices."
    is_wait: NDArray[np.bool_]


def read_nsys_sqlite(
    path: Path, *, is_sound: bool = False, scratch: Path | None = None
) -> CaptureTables:
    """Return everything the export holds. CaptureError for a file that is not a sound export.

    `is_sound`: SQLite has just written the file anew, so its structure needs no check. `scratch`:
    folder for temporary files of large captures; the system's own if None.

    Read-only; nothing is written beside the file. What was not recorded is absent, with a warning
    that says so; `no_gpu_activity` is a state, not an error.
    """
    with open_nsys(path, is_sound=is_sound) as database:
        loaded = _load(database, scratch)
    return _tables(path, loaded, scratch)


def _load(database: NsysDatabase, scratch: Path | None) -> _Loaded:
    quarantine = Quarantine()
    facts = load_facts(database)
    with ThreadPoolExecutor(max_workers=1) as beside:
        # The large tables are read two at a time; both readings leave Python's lock free.
        reading_calls = beside.submit(load_api_calls, database, quarantine, scratch)
        reading_memory = beside.submit(load_memory, database, facts.device_of, quarantine, scratch)
        ops = tuple(
            load_gpu_ops(database, kind, quarantine, scratch)
            for kind in (KERNEL, MEMCPY, MEMSET, GRAPH)
        )
        ranges = load_ranges(database, quarantine)
        calls = reading_calls.result()
        memory = reading_memory.result()
    ops = without_recorded_graphs(ops, scratch)
    if sum(part.total_ns for part in ops) > MAX_SUM_NS:
        where = "durations of GPU operations add up to over 146 years"
        raise CaptureError(database.path, where, DAMAGED)
    late_ns = MAX_TIME_NS
    if facts.session_end_ns is not None:
        late_ns = min(facts.session_end_ns + SESSION_SLACK_NS, MAX_TIME_NS)
    work = join_work(ops, calls, ranges.thread, facts.device_of, late_ns)
    quarantine.note_odd("StringIds", num_of_other_types(database, "StringIds", ["value"], "text"))
    quarantine.note_odd(
        "ANALYSIS_DETAILS", num_of_other_types(database, "ANALYSIS_DETAILS", ["duration"])
    )
    wanted = {*calls.kinds[:, 0].tolist(), *ops[KERNEL].shapes[:, :2].ravel().tolist()}
    return _Loaded(
        facts=facts,
        quarantine=quarantine,
        calls=calls,
        work=work,
        tree=build_tree(ranges),
        memory=memory,
        names=load_names(database, wanted),
    )


def _tables(path: Path, loaded: _Loaded, scratch: Path | None) -> CaptureTables:
    work, calls, tree, facts = loaded.work, loaded.calls, loaded.tree, loaded.facts
    kinds = _call_kinds(calls, loaded.names)
    seen = pass_over(
        work,
        calls,
        tree,
        loaded.names,
        is_wait=kinds.is_wait,
        is_launch=kinds.is_launch,
        scratch=scratch,
    )
    found = phases(
        seen.phase_sums,
        tree,
        work.processes,
        has_work=len(work) > 0,
        by_device_time=seen.by_device_time,
    )
    devices = device_rows(seen.devices)
    api_calls = api_calls_frame(calls, kinds.failed, loaded.names)
    return CaptureTables(
        kind=CaptureKind.NSYS_SQLITE,
        path=path,
        tool="nsys",
        tool_version=facts.tool_version,
        gpu=gpu_of(facts, devices[0]["device"] if devices else 0),
        environment=_environment(facts, devices),
        summary=_summary(loaded, kinds, devices),
        kernels=kernels_frame(work.ops[KERNEL], work.ops[GRAPH], loaded.names) if devices else None,
        phases=found.frame,
        api_calls=api_calls,
        transfers=transfers_frame(work.ops[MEMCPY], work.ops[MEMSET]),
        gaps=gaps_frame(seen.devices),
        memory_points=loaded.memory.points,
        memory=loaded.memory.figures,
        spans=seen.spans,
        ranges=ranges_table(tree, work.processes) if len(tree.ranges) else None,
        warnings=(
            *_work_warnings(loaded, kinds, devices),
            *attribution_warnings(seen, found),
            *failed_call_warnings(api_calls),
            *memory_warnings(loaded.memory),
        ),
    )


def _call_kinds(calls: ApiCalls, names: dict[int, str]) -> _CallKinds:
    def named(test: Callable[[str], bool]) -> NDArray[np.bool_]:
        ids = calls.kinds[:, 0].tolist()
        return np.array([i in names and test(api_name(names[i])) for i in ids], bool)

    failed = is_failed(calls, names)
    return _CallKinds(
        failed=failed,
        is_launch=named(is_launch_call) & ~failed,
        is_graph=named(lambda name: "GraphLaunch" in name) & ~failed,
        launches_one=named(lambda n: is_launch_call(n) and not re.search("Graph|MultiDevice", n)),
        is_wait=named(is_waiting_call),
    )


def _summary(
    loaded: _Loaded, kinds: _CallKinds, devices: list[dict[str, int]]
) -> dict[str, int | float]:
    work, calls = loaded.work, loaded.calls
    summary = summarise(
        work,
        calls,
        num_unanswered=launches_without_work(work, calls, kinds.is_launch),
        num_graph_calls=int(calls.sums.count[kinds.is_graph].sum()),
        are_graphs_lost=lost_graph_launches(work, calls, kinds.is_graph) > 0,
        devices=devices,
    )
    return summary | _peak(loaded.memory) | _windows(loaded)


def _work_warnings(
    loaded: _Loaded, kinds: _CallKinds, devices: list[dict[str, int]]
) -> Iterator[CaptureWarning]:
    work, calls, tree, facts = loaded.work, loaded.calls, loaded.tree, loaded.facts
    has_events = len(work) + len(calls) + len(tree.ranges) > 0
    yield from file_warnings(facts, loaded.quarantine, has_events=has_events)
    if not devices:
        num_waits = int(calls.sums.count[kinds.is_wait].sum())
        yield no_activity_warning(work, calls, num_waits, tree.ranges)
    yield from graph_warnings(work, lost_graph_launches(work, calls, kinds.is_graph))
    yield from work_warnings(work, calls, kinds.is_launch)
    yield from repeated_kernels_warning(work, kinds.launches_one)
    yield from range_warnings(tree.ranges, tree.num_too_deep)
    yield from window_warning(tree.ranges, facts)
    yield from name_warnings(work.ops[KERNEL], calls, loaded.names)


def _windows(loaded: _Loaded) -> dict[str, int]:
    """Return how long was recorded, and from the first to the last event of any kind."""
    parts: tuple[GpuOps | ApiCalls, ...] = (*loaded.work.ops, loaded.calls)
    tables = [part for part in parts if len(part)]
    first = [part.rows.earliest_ns for part in tables]
    last = [part.last_end_ns for part in tables]
    ranges = loaded.tree.ranges
    if len(ranges):
        first.append(int(ranges.start_ns.min()))
        last.append(int(ranges.end_ns.max()))
    if not first:
        return {}
    found = {"event_window_ns": max(last) - min(first)}
    if loaded.facts.session_end_ns:
        found["capture_window_ns"] = loaded.facts.session_end_ns
    return found


def _peak(memory: MemoryUse) -> dict[str, int]:
    peak = memory.figures.get("peak_bytes")
    return {} if peak is None else {"peak_memory_bytes": peak}


def _environment(facts: Facts, devices: list[dict[str, int]]) -> dict[str, Any]:
    environment = dict(facts.environment)
    if len(devices) > 1:
        rows = [{"name": gpu_of(facts, d["device"]).get("name"), **d} for d in devices]
        environment["devices"] = json.dumps(rows)
    return environment

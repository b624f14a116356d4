"""Read an Nsight Systems SQLite export (2021.3 to 2026.2) into tables."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_attribution import Attribution, attribute
from analysis.readers.nsys_columns import Ints
from analysis.readers.nsys_database import DAMAGED, NsysDatabase, open_nsys
from analysis.readers.nsys_events import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    ApiCalls,
    Quarantine,
    load_api_calls,
    load_gpu_ops,
)
from analysis.readers.nsys_facts import Facts, gpu_of, load_facts
from analysis.readers.nsys_gaps import HostCalls, gaps_frame
from analysis.readers.nsys_launches import GpuWork, join_work, without_recorded_graphs
from analysis.readers.nsys_memory import MemoryUse, load_memory
from analysis.readers.nsys_names import api_name, load_names
from analysis.readers.nsys_nesting import RangeTree, build_tree
from analysis.readers.nsys_nvtx import load_ranges
from analysis.readers.nsys_phases import Phases, phases
from analysis.readers.nsys_spans import ranges_table, spans_table
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
    lost_graph_launches,
    no_activity_warning,
    range_warnings,
    window_warning,
    work_warnings,
)
from analysis.tables import CaptureKind, CaptureTables, CaptureWarning
from core.errors import CaptureError

MAX_SUM_NS = float(1 << 62)


@dataclass(slots=True, kw_only=True)
class _Loaded:
    """Everything read from the file, joined."""

    facts: Facts
    quarantine: Quarantine
    calls: ApiCalls
    work: GpuWork
    tree: RangeTree
    memory: MemoryUse
    names: dict[int, str]


def read_nsys_sqlite(path: Path, *, is_sound: bool = False) -> CaptureTables:
    """Return everything the export holds. CaptureError for a file that is not a sound export.

    `is_sound`: SQLite has just written the file anew, so its structure needs no check.

    Read-only; nothing is written beside the file. What was not recorded is absent, with a warning
    that says so; `no_gpu_activity` is a state, not an error.
    """
    with open_nsys(path, is_sound=is_sound) as database:
        loaded = _load(database)
    return _tables(path, loaded)


def _load(database: NsysDatabase) -> _Loaded:
    quarantine = Quarantine()
    facts = load_facts(database)
    with ThreadPoolExecutor(max_workers=1) as beside:
        # The large tables are read two at a time; both readings leave Python's lock free.
        reading_calls = beside.submit(load_api_calls, database, quarantine)
        reading_memory = beside.submit(load_memory, database, facts.device_of, quarantine)
        ops = [load_gpu_ops(database, kind, quarantine) for kind in (KERNEL, MEMCPY, MEMSET, GRAPH)]
        ranges = load_ranges(database, quarantine)
        calls = reading_calls.result()
        memory = reading_memory.result()
    ops = without_recorded_graphs(ops)
    work = join_work(ops, calls, ranges.thread, facts.device_of)
    del ops
    calls = replace(calls, correlation=np.empty(0, np.uint32))
    _check_sums(database.path, work)
    wanted = {*calls.kinds[:, 0].tolist(), *work.ops[KERNEL].shapes[:, :2].ravel().tolist()}
    return _Loaded(
        facts=facts,
        quarantine=quarantine,
        calls=calls,
        work=work,
        tree=build_tree(ranges),
        memory=memory,
        names=load_names(database, wanted),
    )


def _check_sums(path: Path, work: GpuWork) -> None:
    if np.sum(work.end_ns - work.start_ns, dtype=np.float64) > MAX_SUM_NS:
        raise CaptureError(path, "durations of GPU operations add up to over 146 years", DAMAGED)


def _tables(path: Path, loaded: _Loaded) -> CaptureTables:
    work, tree = loaded.work, loaded.tree
    given = attribute(work, loaded.calls, tree)
    tables = _figures(path, loaded, given)
    deepest = given.deepest()
    launch_start_ns = _launch_starts(work, loaded.calls)
    # The calls take as much memory as the spans: they go before those come.
    nothing = np.empty(0, np.int64)
    loaded.calls = replace(
        loaded.calls, start_ns=nothing, end_ns=nothing, kind=nothing.astype(np.int32)
    )
    del given
    return replace(
        tables,
        spans=spans_table(work, launch_start_ns, deepest, tree, loaded.names)
        if len(work)
        else None,
        ranges=ranges_table(tree, work.processes) if len(tree.ranges) else None,
    )


def _launch_starts(work: GpuWork, calls: ApiCalls) -> Ints:
    """Return when each operation's launch call began; 0 where none was recorded."""
    if not len(calls):
        return np.zeros(len(work), np.int64)
    starts = calls.start_ns[np.maximum(work.launch, 0)]
    starts[work.launch < 0] = 0
    return starts


def _figures(path: Path, loaded: _Loaded, given: Attribution) -> CaptureTables:
    """Return everything but the records of single operations and ranges."""
    work, calls, tree, facts = loaded.work, loaded.calls, loaded.tree, loaded.facts
    found = phases(work, given, tree)
    failed = is_failed(calls, loaded.names)
    is_launch = _calls_named(loaded, is_launch_call) & ~failed
    is_wait = _calls_named(loaded, is_waiting_call)
    graph_calls = _calls_named(loaded, lambda n: "GraphLaunch" in n) & ~failed
    devices = device_rows(work)
    lost_graphs = lost_graph_launches(work, graph_calls)
    summary = summarise(work, calls, is_launch, int(graph_calls.sum()), lost_graphs > 0, devices)
    summary |= _peak(loaded.memory) | _windows(loaded)
    api_calls = api_calls_frame(calls, failed, loaded.names)
    warnings = (
        *file_warnings(facts, loaded.quarantine),
        *([] if devices else [no_activity_warning(work, calls, int(is_wait.sum()), tree.ranges)]),
        *graph_warnings(work, lost_graphs),
        *work_warnings(work, calls, is_launch, facts),
        *range_warnings(tree.ranges, tree.num_too_deep),
        *window_warning(tree.ranges, facts),
        *_attribution_warnings(given, found),
        *_failed_calls(api_calls),
        *_memory_warnings(loaded.memory),
    )
    return CaptureTables(
        kind=CaptureKind.NSYS_SQLITE,
        path=path,
        tool="nsys",
        tool_version=facts.tool_version,
        gpu=gpu_of(facts, devices[0]["device"] if devices else 0),
        environment=_environment(facts, devices),
        summary=summary,
        kernels=kernels_frame(work.ops[KERNEL], work.ops[GRAPH], loaded.names) if devices else None,
        phases=found.frame,
        api_calls=api_calls,
        transfers=transfers_frame(work.ops[MEMCPY], work.ops[MEMSET]),
        gaps=gaps_frame(work, HostCalls(calls=calls, is_wait=is_wait, is_launch=is_launch)),
        memory_points=loaded.memory.points,
        memory=loaded.memory.figures,
        warnings=warnings,
    )


def _windows(loaded: _Loaded) -> dict[str, int]:
    """Return how long was recorded, and from the first to the last event of any kind."""
    parts = (loaded.work, loaded.calls, loaded.tree.ranges)
    filled = [p for p in parts if len(p)]
    if not filled:
        return {}
    last = max(int(p.end_ns.max()) for p in filled)
    found = {"event_window_ns": last - min(int(p.start_ns.min()) for p in filled)}
    if loaded.facts.session_end_ns:
        found["capture_window_ns"] = loaded.facts.session_end_ns
    return found


def _peak(memory: MemoryUse) -> dict[str, int]:
    peak = memory.figures.get("peak_bytes")
    return {} if peak is None else {"peak_memory_bytes": peak}


def _calls_named(loaded: _Loaded, test: Any) -> NDArray[np.bool_]:
    names, calls = loaded.names, loaded.calls
    chosen = [i in names and test(api_name(names[i])) for i in calls.kinds[:, 0].tolist()]
    return np.array([*chosen, False], bool)[calls.kind]


def _environment(facts: Facts, devices: list[dict[str, int]]) -> dict[str, Any]:
    environment = dict(facts.environment)
    if len(devices) > 1:
        rows = [{"name": gpu_of(facts, d["device"]).get("name"), **d} for d in devices]
        environment["devices"] = json.dumps(rows)
    return environment


def _attribution_warnings(given: Attribution, found: Phases) -> Iterator[CaptureWarning]:
    if given.num_ambiguous:
        yield CaptureWarning(
            code="ambiguous_ranges",
            message=f"{given.num_ambiguous} GPU operations come from threads without a range while "
            "several threads of the process had one open: they are given to none",
        )
    if given.by_device_time and len(found.frame) and len(given.own):
        yield CaptureWarning(
            code="ranges_by_device_time",
            message="no API call was recorded: kernels are given to the ranges in which they ran, "
            "not to those that launched them",
        )
    if found.num_left_out:
        yield CaptureWarning(
            code="phases_left_out",
            message=f"{found.num_left_out} range paths are not listed: only the {len(found.frame)} "
            "shallowest and longest are",
        )
    if found.num_uncounted:
        yield CaptureWarning(
            code="straddling_launches",
            message=f"{found.num_uncounted} ranges include launches that outlast them",
        )


def _failed_calls(api_calls: Any) -> Iterator[CaptureWarning]:
    failed = api_calls[api_calls["num_failed"] > 0] if len(api_calls) else api_calls
    if len(failed):
        named = ", ".join(f"{r.name} ({r.num_failed})" for r in _named(failed.head(5)))
        total = int(failed["num_failed"].sum())
        yield CaptureWarning(code="failed_api_calls", message=f"{total} CUDA calls failed: {named}")


def _named(frame: Any) -> list[Any]:
    return list(frame.itertuples(index=False))


def _memory_warnings(memory: MemoryUse) -> Iterator[CaptureWarning]:
    if memory.figures.get("is_partial"):
        size = memory.figures["baseline_bytes"]
        yield CaptureWarning(
            code="memory_before_capture",
            message=f"{size} bytes were allocated before the capture, as their release shows; what "
            "was never released is unknown, so the curve is partial",
        )

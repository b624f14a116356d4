"""A Chrome trace of AMD's rocprof, made by hand, is read as a capture of its program."""

import json
from pathlib import Path
from typing import Any

from analysis.readers import read
from analysis.readers.torch_trace.load import load_trace
from analysis.trace.model import MISSING

NAMES = {2: "CPU HIP API", 1: "COPY", 6: "GPU0", 7: "GPU1"}


def span(process: int, thread: int, name: str, begin_ns: int, length_ns: int) -> dict[str, Any]:
    """Return a span as rocprof writes it: numbers as texts, whole us, ns in the arguments."""
    args = {
        "BeginNs": str(begin_ns),
        "EndNs": str(begin_ns + length_ns),
        "pid": "900",
        "tid": "901",
        "dev-id": "1",
        "queue-id": "0",
        "stream-id": "3",
        "Name": name,
        "DurationNs": str(length_ns),
    }
    at = {"pid": str(process), "tid": str(thread), "ts": str(begin_ns // 1000)}
    return {"ph": "X", "name": name, **at, "dur": str(length_ns // 1000), "args": args}


def arrow(number: int, process: int, thread: int, us: int, phase: str) -> dict[str, Any]:
    at = {"pid": process, "tid": thread, "ts": us}
    return {"ph": phase, "cat": "DataFlow", "id": number, "name": "dep", **at}


def trace(path: Path) -> Path:
    names = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        for pid, name in NAMES.items()
    ]
    events = [
        {},
        *names,
        span(2, 901, "hipMemcpy", 5_000_000, 90_000),
        span(2, 901, "hipLaunchKernel", 5_100_400, 7_000),
        span(1, 0, "CopyHostToDevice", 5_030_250, 55_125),
        span(7, 0, "void add<float>(float*) [clone .kd]", 5_120_123, 40_456),
        arrow(0, 2, 901, 5_030, "s"),
        arrow(0, 1, 0, 5_030, "t"),
        arrow(4, 2, 901, 5_103, "s"),
        arrow(4, 7, 0, 5_120, "t"),
    ]
    path.write_text(json.dumps({"traceEvents": events, "otherData": {}}))
    return path


def test_spans_are_what_their_process_says_with_times_to_the_ns(tmp_path: Path) -> None:
    found = load_trace(trace(tmp_path / "results.json")).trace

    ops = found.gpu_ops
    assert [found.labels[i].name for i in ops.label.tolist()] == ["HtoD", "void add<float>(float*)"]
    assert (ops.end_ns - ops.start_ns).tolist() == [55_125, 40_456]
    assert int(ops.start_ns[1] - ops.start_ns[0]) == 5_120_123 - 5_030_250
    assert ops.device.tolist() == [1, 1]


def test_arrows_tie_each_operation_to_the_call_in_which_they_begin(tmp_path: Path) -> None:
    found = load_trace(trace(tmp_path / "results.json")).trace

    calls = [found.names[found.host_calls.name[i]] for i in found.gpu_ops.launch.tolist()]
    assert MISSING not in found.gpu_ops.launch.tolist()
    assert calls == ["hipMemcpy", "hipLaunchKernel"]


def test_it_imports_without_a_complaint_about_launches(tmp_path: Path) -> None:
    tables = read(trace(tmp_path / "results.json"))

    assert tables.kernels["total_ns"].tolist() == [40_456]
    assert not {w.code for w in tables.warnings} & {"kernels_without_launch", "unknown_events"}

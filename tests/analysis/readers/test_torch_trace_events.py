"""PyTorch traces: what reaches the event tables beside kernels."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.readers import read
from analysis.readers.torch_trace.load import LoadedTrace, load_trace
from analysis.trace.attribution import attribute
from analysis.trace.model import MISSING, RangeKind
from analysis.trace.operators import operator_table, operators_document
from analysis.trace.ranges import phase_ranges
from analysis.trace.steps import find_steps
from tests.analysis.readers.test_torch_trace import REAL, _codes, _kernel, _launch, _read, _x

NO_NUMBERS = ["inf", "-inf", "nan", "-nan", "NaN", "Infinity", "-Infinity", "-nan(ind)", "1.#INF"]


def _load(tmp_path: Path, events: list[Any], **header: Any) -> LoadedTrace:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**header, "traceEvents": events}))
    return load_trace(path)


def _times(events: list[dict[str, Any]]) -> list[int]:
    return sorted(round(float(e["ts"]) * 1000) for e in events)


def test_the_tables_of_a_real_trace_agree_with_a_plain_reading() -> None:
    events = json.loads(gzip.decompress(REAL.read_bytes()))["traceEvents"]
    by_kind = Counter(e.get("cat") for e in events)
    memory = [e for e in events if e.get("name") == "[memory]" and e["args"]["Bytes"]]

    trace = load_trace(REAL).trace

    assert len(trace.host_calls) == by_kind["cuda_runtime"] + by_kind["cuda_driver"]
    kinds = Counter(trace.host_ranges.kind.tolist())
    assert kinds[RangeKind.OPERATOR] == by_kind["cpu_op"]
    assert kinds[RangeKind.ANNOTATION] == by_kind["user_annotation"]
    assert trace.allocations.num_bytes.sum() == sum(e["args"]["Bytes"] for e in memory)
    with_number = [e for e in events if e.get("args", {}).get("Sequence number") is not None]
    assert (trace.host_ranges.sequence >= 0).sum() == len(with_number)
    with_dims = [e for e in events if e.get("args", {}).get("Input Dims")]
    assert (trace.host_ranges.detail >= 0).sum() == len(with_dims)


def test_the_allocator_s_own_totals_are_the_memory_in_use() -> None:
    events = json.loads(gzip.decompress(REAL.read_bytes()))["traceEvents"]
    totals = [
        (e["args"]["Total Allocated"], e["args"]["Total Reserved"])
        for e in events
        if e.get("name") == "[memory]" and e["args"]["Device Type"] == 1
    ]

    tables = read(REAL)

    assert tables.memory["peak_bytes"] == max(allocated for allocated, _ in totals)
    assert tables.memory_points["reserved_bytes"].max() == max(held for _, held in totals)
    assert tables.memory["source"] == "PyTorch's allocator (profile_memory)"
    assert not tables.memory["is_partial"]


def test_operators_modules_and_shapes_are_ranges_of_their_kinds(tmp_path: Path) -> None:
    events = [
        _x("user_annotation", "forward", 0, 100),
        _x("python_function", "nn.Module: Linear_0", 1, 90),
        _x("cpu_op", "aten::mm", 5, 50, **{"Sequence number": 7, "Input Dims": [[2, 3], [3, 4]]}),
        _x("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 60, 9, 2),
    ]
    loaded = _load(tmp_path, events).trace
    ranges = loaded.host_ranges
    assert ranges.kind.tolist() == [
        RangeKind.ANNOTATION, RangeKind.PYTHON, RangeKind.OPERATOR, RangeKind.OPERATOR
    ]  # fmt: skip
    assert ranges.parent.tolist() == [MISSING, 0, 1, MISSING]
    assert ranges.sequence.tolist() == [MISSING, MISSING, 7, MISSING]
    assert loaded.text(ranges.detail)[2] == "[[2, 3], [3, 4]]"
    assert [t.is_autograd for t in loaded.sources.threads] == [False, True]


def test_a_convolution_s_stride_counts_its_flops_and_is_no_shape(tmp_path: Path) -> None:
    dims = [[2, 3, 16, 16], [8, 3, 3, 3], [8], [], [], [], [], [], []]
    values = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    events = [
        _x("cpu_op", "aten::convolution", 5, 50, **{"Input Dims": dims, "Concrete Inputs": values}),
        _x("cpu_op", "aten::mm", 60, 9, **{"Input Dims": [[2, 3], [3, 4]], "Concrete Inputs": 3}),
    ]
    trace = _load(tmp_path, events).trace

    found = operator_table(trace, attribute(trace, phase_ranges(trace)), find_steps(trace))

    assert found is not None
    rows = {row["name"]: row for row in operators_document(found.frame)}
    assert rows["aten::convolution"]["flops"] == 2 * 2 * 8 * 8 * 8 * 3 * 9
    assert [json.loads(x) for x in rows["aten::convolution"]["shapes"]] == [dims]
    assert rows["aten::mm"]["flops"] == 2 * 2 * 3 * 4


def test_arguments_of_collectives_are_kept_beside_kernel_and_call(tmp_path: Path) -> None:
    args = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 2049000,
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
        "Seq": 4,
    }
    events = [
        _launch(20, 2),
        _kernel("ncclDevKernel_AllReduce", 30, 9, 2, **args),
        _kernel("gemm", 10, 5, 1),
        _x("cpu_op", "record_param_comms", 15, 9, 2, **args),
    ]
    trace = _load(tmp_path, events).trace
    found = trace.collectives
    assert (found.op.tolist(), found.host_range.tolist()) == ([1, MISSING], [MISSING, 0])
    assert trace.text(found.name) == ["allreduce", "allreduce"]
    assert trace.text(found.ranks) == ["[0, 1]", "[0, 1]"]
    assert found.num_elements_in.tolist() == [2049000, 2049000]
    assert (found.sequence.tolist(), found.src_rank.tolist()) == ([4, 4], [MISSING, MISSING])


def test_sources_name_rank_threads_gpu_and_clock(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": 10, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 1, "args": {"name": "pt_main"}},
        _x("Trace", "PyTorch Profiler (0)", 0, 100, "Profiler"),
        _launch(1, 1),
        _kernel("k", 5, 2, 1),
    ]
    gpu = {"id": 0, "name": "NVIDIA H100", "numSms": 132}
    header = {"deviceProperties": [gpu], "distributedInfo": {"rank": 3}}
    sources = _load(tmp_path, events, baseTimeNanoseconds=10**18, **header).trace.sources
    assert [(p.pid, p.name, p.rank) for p in sources.processes] == [(10, "python", 3)]
    assert [(t.tid, t.name) for t in sources.threads] == [(1, "pt_main")]
    assert sources.devices[0]["name"] == "NVIDIA H100"
    assert (sources.utc_origin_ns, sources.session_end_ns) == (10**18, 100_000)


@pytest.mark.parametrize(("ts", "origin"), [(1_661_203_462_598_738, 0), (5_000, None)])
def test_times_since_1970_are_their_own_clock(ts: int, origin: int | None, tmp_path: Path) -> None:
    assert _load(tmp_path, [_launch(ts, 1)]).trace.sources.utc_origin_ns == origin


def test_kernels_of_autograd_belong_to_the_step_that_encloses_their_launch(tmp_path: Path) -> None:
    events = [_x("user_annotation", f"ProfilerStep#{i}", 1000 * i, 900) for i in (1, 2)]
    for i in (1, 2):
        events.append(_x("cpu_op", "autograd::engine::evaluate_function: X", 1000 * i + 400, 90, 2))
        events += [_launch(1000 * i + 10 + j, 100 * i + j) for j in range(5)]
        events += [_launch(1000 * i + 410 + j, 100 * i + 50 + j, tid=2) for j in range(7)]
        started = [(j, 20 + j) for j in range(5)] + [(50 + j, 450 + j) for j in range(7)]
        events += [_kernel("k", 1000 * i + at, 1, 100 * i + j) for j, at in started]
    phases = _read(tmp_path, events).phases
    assert phases["num_kernels"].tolist() == [12, 12]
    assert phases["attribution"].tolist() == ["process_time", "process_time"]


def test_a_collective_s_own_range_does_not_hide_the_step(tmp_path: Path) -> None:
    events = [
        _x("user_annotation", "ProfilerStep#1", 0, 100),
        _x("user_annotation", "nccl:all_reduce", 50, 10, 2),
        _launch(52, 1, tid=2),
        _kernel("ncclDevKernel", 55, 5, 1),
    ]
    phases = _read(tmp_path, events).phases.set_index("path")
    assert phases.loc["ProfilerStep#1", "num_kernels"] == 1


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_infinity_and_no_number_in_unused_arguments_are_read(text: str, tmp_path: Path) -> None:
    events = json.dumps([_launch(1, 1), _kernel("k, inf, nan", 5, 2, 1, bandwidth=0.123)])
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": ' + events.replace("0.123", text) + "}")
    tables = read(path)
    assert tables.kernels[["name", "total_ns"]].to_numpy().tolist() == [["k, inf, nan", 2000]]


def test_many_infinities_take_no_time(tmp_path: Path) -> None:
    event = json.dumps(_kernel("k", 5, 2, 1, bandwidth=0.5)).replace("0.5", "inf")
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + ",".join([event] * 20_000) + "]}")
    assert len(load_trace(path).trace.gpu_ops) == 20_000


def test_an_empty_event_at_the_end_changes_nothing(tmp_path: Path) -> None:
    events = [_launch(1, 1), _kernel("k", 5, 2, 1)]
    assert _codes(_read(tmp_path, [*events, {}])) == _codes(_read(tmp_path, events))


def test_launches_that_a_graph_captures_are_not_cut_off(tmp_path: Path) -> None:
    events = [_launch(10 * i, i, name=name) for i, name in enumerate(
        ["cudaStreamBeginCapture", "cudaLaunchKernel", "cudaLaunchKernel", "cudaStreamEndCapture"]
    )]  # fmt: skip
    tables = _read(tmp_path, [*events, _launch(50, 9), _kernel("k", 55, 2, 9)])
    assert "launches_captured" in _codes(tables)
    assert tables.summary["num_launches_without_kernel"] == 0


def test_a_slash_in_a_name_is_no_nesting(tmp_path: Path) -> None:
    events = [
        _x("user_annotation", "layers/0", 0, 10),
        _x("user_annotation", "layers", 20, 10),
        _x("user_annotation", "0", 22, 5),
        *(_launch(t, t) for t in (1, 23)),
        *(_kernel("k", t, d, t) for t, d in ((1, 5), (23, 7))),
    ]
    phases = _read(tmp_path, events).phases
    assert sorted(phases["kernel_ns"].tolist()) == [5_000, 7_000, 7_000]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_trace_that_powershell_wrote_is_read(encoding: str, tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [_launch(1, 1), _kernel("k", 5, 2, 1)]})
    path = tmp_path / "t.json"
    path.write_bytes(text.encode(encoding))
    tables = read(path)
    assert tables.summary["kernel_time_ns"] == 2_000
    assert "zero_bytes" not in _codes(tables)

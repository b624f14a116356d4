"""PyTorch traces: what is wrong in them is counted and left out, never added up."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from analysis.iterations import iteration_kernel_ns, iteration_rows, num_iterations
from analysis.readers import read
from analysis.readers.torch_trace.columns import INVALID, time_ns
from analysis.tables import (
    API_CALL_COLUMNS,
    GAP_COLUMNS,
    KERNEL_COLUMNS,
    PHASE_COLUMNS,
    RANGE_COLUMNS,
    SPAN_COLUMNS,
    TRANSFER_COLUMNS,
    CaptureTables,
)
from core.errors import CaptureError

REAL = Path(__file__).resolve().parents[2] / "data" / "h100" / "kineto" / "train_bf16.json.gz"


def _x(cat: str, name: str, ts: Any, dur: Any, tid: Any = 1, **args: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": cat, "name": name, "pid": 10, "tid": tid, "ts": ts, "dur": dur}
    return event | {"args": args}


def _kernel(
    name: str, ts: Any, dur: Any, corr: int, stream: int = 7, **more: Any
) -> dict[str, Any]:
    args = {
        "device": 0,
        "stream": stream,
        "correlation": corr,
        "grid": [1, 1, 1],
        "block": [32, 1, 1],
    }
    return _x("kernel", name, ts, dur, stream, **(args | more))


def _launch(ts: Any, corr: int, tid: int = 1, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return _x("cuda_runtime", name, ts, 2, tid, correlation=corr)


def _read(tmp_path: Path, events: list[Any], **header: Any) -> CaptureTables:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**header, "traceEvents": events}))
    return read(path)


def _codes(tables: CaptureTables) -> set[str]:
    return {w.code for w in tables.warnings}


@pytest.fixture(scope="module")
def real() -> CaptureTables:
    return read(REAL)


def test_real_trace_agrees_with_a_plain_reading(real: CaptureTables) -> None:
    events = json.loads(gzip.decompress(REAL.read_bytes()))["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert real.summary["num_kernels"] == len(kernels) == 1582
    assert real.summary["kernel_time_ns"] == sum(round(e["dur"] * 1000) for e in kernels)
    assert real.kernels["total_ns"].sum() == real.summary["kernel_time_ns"] == 8_507_215
    assert real.transfers["bytes"].sum() == 38_535_168
    assert real.gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert real.summary["num_kernels_without_launch"] == 0


def test_idle_time_is_split_without_rest(real: CaptureTables) -> None:
    idle_ns = real.summary["span_ns"] - real.summary["busy_ns"]
    assert tuple(real.gaps.columns) == GAP_COLUMNS
    assert real.gaps["total_ns"].sum() == idle_ns


def test_real_trace_fills_the_contract(real: CaptureTables) -> None:
    assert tuple(real.kernels.columns) == KERNEL_COLUMNS
    assert tuple(real.phases.columns) == PHASE_COLUMNS
    assert tuple(real.api_calls.columns) == API_CALL_COLUMNS
    assert tuple(real.transfers.columns) == TRANSFER_COLUMNS
    assert tuple(real.spans.column_names) == SPAN_COLUMNS
    assert tuple(real.ranges.column_names) == RANGE_COLUMNS
    starts = real.spans["start_ns"].to_pylist()
    assert starts == sorted(starts) and len(starts) == 1582 + 49


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("4955053820298.509", 4955053820298509),
        ("1661203462598738.123", 1661203462598738123),
        (1661203462598738, 1661203462598738000),
        ("2.304", 2304),
        ("19", 19000),
        ("1e3", 1_000_000),
        (" 12.5 ", 12500),
        ("nan", INVALID),
        ("inf", INVALID),
        ("1e400", INVALID),
        ("x", INVALID),
        (None, INVALID),
        (True, INVALID),
        (10**40, INVALID),
    ],
)
def test_times_are_decimals_never_floats(value: Any, expected: int) -> None:
    assert time_ns(value) == expected


def test_impossible_durations_are_quarantined_and_counted(tmp_path: Path) -> None:
    good = [_kernel("k", 100 + 10 * i, 5, i + 1) for i in range(20)]
    launches = [_launch(50 + i, i + 1) for i in range(24)]
    bad = [
        _kernel("k", 115, 7_449_000_000_000_000, 21),  # 236 years
        _kernel("k", 116, -3, 22),
        _kernel("k", 125, 60, 23),  # outlasts six later kernels of its stream
        _kernel("k", 0, 0, 24) | {"ts": None},
    ]
    tables = _read(tmp_path, good + bad + launches)
    assert tables.summary["num_kernels"] == 20
    assert tables.summary["kernel_time_ns"] == 100_000
    assert tables.summary["num_quarantined"] == 4
    assert "quarantined_events" in _codes(tables)


def test_overlap_on_one_stream_is_kept_and_counted_once_in_busy(tmp_path: Path) -> None:
    events = [_kernel("a", 0, 10, 1), _kernel("b", 8, 10, 2), _launch(-9, 1), _launch(-5, 2)]
    tables = _read(tmp_path, events)
    assert tables.summary["kernel_time_ns"] == 20_000
    assert tables.summary["busy_ns"] == tables.summary["span_ns"] == 18_000
    assert tables.summary["idle_frac"] == 0
    assert tables.summary["num_quarantined"] == 0


def test_branches_of_one_graph_may_outlast_each_other(tmp_path: Path) -> None:
    kernels = [_kernel("long", 0, 50, 1), _kernel("s", 5, 5, 1), _kernel("t", 15, 5, 1)]
    tables = _read(tmp_path, [*kernels, _launch(-9, 1, name="cudaGraphLaunch")])
    assert tables.summary["num_kernels"] == 3
    assert tables.summary["num_graph_launches"] == 1


def test_long_kernels_beside_short_ones_are_kept_where_they_are_ordinary(tmp_path: Path) -> None:
    long = [_kernel("all_reduce", 100 * i, 90, 10 * i + 1) for i in range(4)]
    short = [
        _kernel("k", 100 * i + 5 * j, 3, 10 * i + 2 + j) for i in range(4) for j in range(1, 5)
    ]
    tables = _read(tmp_path, [*long, *short, _launch(-5, 1)])
    assert tables.summary["num_quarantined"] == 0


def test_devices_are_added_up_not_merged(tmp_path: Path) -> None:
    events = [_kernel("a", 0, 10, 1), _kernel("a", 0, 10, 2, device=1), _launch(-9, 1)]
    tables = _read(tmp_path, [*events, _launch(-9, 2)])
    assert tables.summary["busy_ns"] == tables.summary["span_ns"] == 20_000


def test_launches_and_kernels_without_partner_are_counted(tmp_path: Path) -> None:
    events = [
        _launch(0, 1),
        _launch(5, 2),
        _x("cuda_runtime", "cudaDeviceSynchronize", 9, 1, correlation=3),
        _kernel("early", -4, 2, 1),
        _kernel("orphan", 30, 2, 99),
    ]
    tables = _read(tmp_path, events)
    assert tables.summary["num_launches_without_kernel"] == 1
    assert tables.summary["num_kernels_without_launch"] == 1
    assert tables.summary["num_kernels_before_launch"] == 1
    assert {"launches_without_kernel", "kernels_without_launch"} <= _codes(tables)
    assert "operations_before_launch" in _codes(tables)
    calls = tables.api_calls.set_index("name")
    assert calls.loc["cudaDeviceSynchronize", "is_sync"]


@pytest.mark.parametrize("num_steps", [1, 2, 5])
def test_kernel_time_an_iteration_is_that_of_a_step_however_many_there_are(
    num_steps: int, tmp_path: Path
) -> None:
    events = []
    for i in range(num_steps):
        events += [_x("user_annotation", f"ProfilerStep#{i}", 100 * i, 90)]
        events += [_launch(100 * i + 10, i + 1), _kernel("k", 100 * i + 20, 5, i + 1)]
    tables = _read(tmp_path, events)
    assert tables.summary["num_kernels"] == tables.kernels["count"].sum() == num_steps
    assert tables.summary["kernel_time_ns"] / num_iterations(tables.phases) == 5_000
    assert iteration_kernel_ns(tables.phases) == 5_000


def test_numbered_ranges_inside_a_step_are_parts_of_it(tmp_path: Path) -> None:
    events = [_x("user_annotation", "ProfilerStep#3", 0, 100), _launch(6, 1), _launch(46, 2)]
    events += [_x("user_annotation", f"step_{i}", 5 + 40 * i, 30) for i in (0, 1)]
    events += [_kernel("k", 10 + 40 * i, 5, i + 1) for i in (0, 1)]
    phases = _read(tmp_path, events).phases
    assert (num_iterations(phases), iteration_kernel_ns(phases)) == (1, 10_000)
    assert iteration_rows(phases)["host_ns"].median() == 100_000


def test_backward_goes_by_time_and_says_so(tmp_path: Path) -> None:
    events = [
        _x("user_annotation", "step", 0, 100),
        _x("user_annotation", "forward", 10, 20),
        _x("user_annotation", "backward", 40, 30),
        _x("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 45, 20, 2),
        _launch(12, 1),
        _launch(46, 2, tid=2),
        _launch(80, 3, tid=3),
        _kernel("f", 20, 5, 1),
        _kernel("b", 60, 7, 2),
        _kernel("other", 90, 3, 3),
        _x("gpu_user_annotation", "forward", 20, 5, 7),
    ]
    phases = _read(tmp_path, events).phases.set_index("path")
    assert phases["kernel_ns"].to_dict() == {
        "step": 15_000,
        "step/forward": 5_000,
        "step/backward": 7_000,
    }
    assert phases["attribution"].to_dict() == {
        "step": "process_time",
        "step/forward": "launch_thread",
        "step/backward": "process_time",
    }
    assert phases.loc["step", "projected_ns"] == 73_000
    assert phases.loc["step/forward", "host_ns"] == 20_000


def test_without_launches_the_device_time_decides(tmp_path: Path) -> None:
    events = [_x("user_annotation", "run", 0, 100), _kernel("k", 20, 5, 0)]
    phases = _read(tmp_path, events).phases
    assert phases["kernel_ns"].tolist() == [5000]
    assert phases["attribution"].tolist() == ["device_time"]


def test_names_of_2021_and_text_times_are_read(tmp_path: Path) -> None:
    events = [
        _x("Runtime", "cudaLaunchKernel", "5.000", "2.000", correlation="1"),
        _kernel("k", "10.250", "5.125", 1) | {"cat": "Kernel"},
        _x("Memcpy", "Memcpy HtoD (Pageable -> Device)", 30, 2, 7, device=0, stream=7, bytes=64),
    ]
    tables = _read(tmp_path, events)
    assert tables.summary["kernel_time_ns"] == 5125
    assert tables.transfers.iloc[0].to_dict() == {
        "kind": "HtoD",
        "src": "pageable",
        "dst": "device",
        "count": 1,
        "bytes": 64,
        "total_ns": 2000,
    }


def test_cpu_trace_gives_operators_their_own_time(tmp_path: Path) -> None:
    events = [
        _x("user_annotation", "forward", 0, 100),
        _x("cpu_op", "aten::linear", 10, 50),
        _x("cpu_op", "aten::addmm", 20, 30),
        _x("cpu_op", "aten::relu", 70, 10),
    ]
    tables = _read(tmp_path, events)
    own = tables.kernels.set_index("name")["total_ns"].to_dict()
    assert own == {"aten::addmm": 30_000, "aten::linear": 20_000, "aten::relu": 10_000}
    assert tables.phases["kernel_ns"].tolist() == [60_000]
    assert "cpu_operators" in _codes(tables)
    assert tables.kernels["short_name"].tolist() == tables.kernels["name"].tolist()


def test_empty_trace_is_a_state_not_zero(tmp_path: Path) -> None:
    tables = _read(tmp_path, [])
    assert tables.summary == {}
    assert _codes(tables) == {"no_gpu_activity"}


def test_events_of_unknown_kind_are_said(tmp_path: Path) -> None:
    events = [_kernel("k", 1, 1, 1), _kernel("k", 5, 1, 2) | {"cat": "kernem"}, _launch(0, 1), 7]
    codes = _codes(_read(tmp_path, events))
    assert {"unknown_events", "not_events"} <= codes


def test_begin_and_end_pairs_that_are_not_read_are_said(tmp_path: Path) -> None:
    operator = _x("cpu_op", "aten::mm", 0, 9)
    begin = {k: v for k, v in operator.items() if k != "dur"} | {"ph": "B"}
    tables = _read(
        tmp_path, [begin, begin | {"ph": "E", "ts": 9}, _launch(1, 1), _kernel("k", 5, 1, 1)]
    )
    message = next(w.message for w in tables.warnings if w.code == "unknown_events")
    assert "1 of cpu_op as begin and end pairs" in message


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.99])
def test_cut_trace_names_the_byte(cut: float, tmp_path: Path) -> None:
    text = gzip.decompress(REAL.read_bytes())
    path = tmp_path / "cut.json"
    size = int(len(text) * cut)
    path.write_bytes(text[:size])
    with pytest.raises(CaptureError, match=r"cut\.json: .*at byte \d+"):
        read(path)


def test_byte_of_a_fault_is_exact(tmp_path: Path) -> None:
    head = '{"traceEvents": [{"name": "\u00e9"}, '.encode()
    path = tmp_path / "t.json"
    path.write_bytes(head + b"oops]}")
    with pytest.raises(CaptureError, match=f"at byte {len(head)}"):
        read(path)


@pytest.mark.parametrize("tail", ["x", "{}", ',"traceEvents": []}'])
def test_text_after_the_end_and_doubled_lists_are_refused(tail: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": []' + (tail if tail[0] == "," else "}" + tail))
    with pytest.raises(CaptureError, match=r"at byte \d+"):
        read(path)


def test_what_pytorch_really_writes_is_tolerated(tmp_path: Path) -> None:
    events = json.dumps([_kernel("NAME", 10, 5, 1), _launch(1, 1)])
    text = (
        '{"file": "C:\\work\\utils\\x.py", "traceEvents": '
        + events.replace("NAME", "k\x01\\d")
        + "}"
    )
    path = tmp_path / "t.json"
    path.write_bytes(text.encode() + b"\n")
    tables = read(path)
    assert tables.summary["kernel_time_ns"] == 5000
    assert "repaired_json" in _codes(tables)


def test_bytes_that_are_not_utf8_do_not_stop_the_reader(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [_kernel("NAME", 10, 5, 1), _launch(1, 1)]}).encode()
    path = tmp_path / "t.json"
    path.write_bytes(text.replace(b"NAME", b"k\xff\xfe"))
    assert read(path).kernels["name"].tolist() == ["k\ufffd\ufffd"]


def test_deep_json_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + "[" * 200_000)
    with pytest.raises(CaptureError, match=r"t\.json: "):
        read(path)


def test_gigantic_numbers_are_quarantined(tmp_path: Path) -> None:
    events = [_kernel("k", 10, 5, 1), _kernel("k", 20, 10**40, 2), _kernel("k", 10**30, 1, 3)]
    tables = _read(tmp_path, events)
    assert tables.summary["num_quarantined"] == 2
    assert tables.summary["kernel_time_ns"] == 5000


def test_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ts": ' + "7" * 5000 + "}]}")
    with pytest.raises(CaptureError, match="too long at byte"):
        read(path)


def test_a_cpu_trace_has_steps_of_operators_and_no_figure_of_a_gpu(tmp_path: Path) -> None:
    events = [_x("cpu_op", "aten::rand", 0, 40)]
    for start in range(100, 4100, 1000):
        events += [
            _x("user_annotation", f"iteration_{start // 1000}", start, 900),
            _x("user_annotation", "forward", start + 1, 800),
            _x("cpu_op", "aten::linear", start + 10, 300),
            _x("cpu_op", "aten::mm", start + 20, 250),
        ]

    tables = _read(tmp_path, events)

    facts = tables.step_facts
    assert (facts["source"], facts["count"], facts["num_kernels"]) == ("ranges", 4, 2)
    assert facts["kernel_ns"] == 300_000
    assert not {"idle_frac", "busy_ns", "num_launches", "gaps", "transfers"} & set(facts)
    own = dict(zip(tables.step_kernels["name"], tables.step_kernels["total_ns"], strict=True))
    assert own == {"aten::mm": 250_000, "aten::linear": 50_000}
    forward = next(p for p in facts["phases"] if p["path"].endswith("forward"))
    assert (forward["host_ns"], forward["kernel_ns"]) == (800_000, 300_000)

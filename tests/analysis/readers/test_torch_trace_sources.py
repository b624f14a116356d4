"""PyTorch traces of several ranks, of other makers' devices and of other tools."""

from pathlib import Path
from typing import Any

import pytest

from core.errors import CaptureError
from tests.analysis.readers.test_torch_trace import _codes, _kernel, _launch, _read, _x
from tests.analysis.readers.test_torch_trace_events import _load


def _rank(rank: int, cpu_pid: Any, gpu_pid: Any) -> list[dict[str, Any]]:
    """Five launches in a range, with the ids and the GPU number that every rank has."""
    events = [_x("user_annotation", f"forward{rank}", rank, 400) | {"pid": cpu_pid}]
    for i in range(5):
        start = 20 + 50 * i + 3 * rank
        events.append(_launch(start - 10, 100 + i) | {"pid": cpu_pid})
        events.append(_kernel("k", start, 40, 100 + i) | {"pid": gpu_pid})
    return events


def test_merged_ranks_keep_their_own_launches_and_devices(tmp_path: Path) -> None:
    events = [*_rank(0, "[TP00] 4711", "[TP00] 0"), *_rank(1, "[TP01] 4712", "[TP01] 0")]
    tables = _read(tmp_path, events)
    assert (tables.summary["busy_ns"], tables.summary["kernel_time_ns"]) == (400_000, 400_000)
    assert tables.phases["num_kernels"].tolist() == [5, 5]
    assert set(tables.spans["device"].to_pylist()) == {0, 1}
    assert "colliding_correlation_ids" not in _codes(tables)


def test_an_id_of_two_processes_gives_a_kernel_to_neither(tmp_path: Path) -> None:
    tables = _read(tmp_path, [*_rank(0, 10, 0), *_rank(1, 20, 0)])
    assert tables.phases["num_kernels"].tolist() == [0, 0]
    assert tables.summary["num_kernels_without_launch"] == tables.summary["num_kernels"] == 10
    assert "colliding_correlation_ids" in _codes(tables)


def test_ids_that_start_again_belong_to_the_launch_before_the_kernel(tmp_path: Path) -> None:
    events = []
    for step in range(3):
        begin = 1_000 * step
        events.append(_x("user_annotation", f"step {step}", begin, 900))
        for i in range(5):
            events.append(_launch(begin + 100 * i, i + 1))
            events.append(_kernel("k", begin + 100 * i + 20, 9, i + 1))
    tables = _read(tmp_path, events)
    assert tables.phases["num_kernels"].tolist() == [5, 5, 5]
    assert not _codes(tables) & {"colliding_correlation_ids", "repeated_kernels"}


def test_one_step_of_two_ranks_is_no_first_step(tmp_path: Path) -> None:
    events = [_x("user_annotation", "ProfilerStep#5", 2 * r, 90) | {"pid": r} for r in (1, 2)]
    tables = _read(tmp_path, [*events, _launch(10, 1), _launch(93, 2), _kernel("k", 20, 9, 1)])
    assert "first_step_excluded" not in _codes(tables) and tables.summary["num_kernels"] == 1


def test_steps_that_are_operators_are_ranges(tmp_path: Path) -> None:
    steps = [_x("Operator", f"ProfilerStep#{i}", 100 * i, 100) for i in (0, 1)]
    tables = _read(tmp_path, [*steps, *(_x("Operator", "aten::add", t, 40) for t in (10, 110))])
    assert tables.kernels[["name", "total_ns"]].to_numpy().tolist() == [["aten::add", 80_000]]
    assert tables.phases["path"].tolist() == ["ProfilerStep#0", "ProfilerStep#1"]


@pytest.mark.parametrize("streams", [(1 << 46, 3 << 45), ("queue A", "queue B")])
def test_streams_named_by_handle_or_text_stay_apart(tmp_path: Path, streams: Any) -> None:
    events = [_kernel("long", 10, 500, 1, streams[0])]
    events += [_kernel("k", 20 + 40 * i, 30, 2 + i, streams[1]) for i in range(3)]
    tables = _read(tmp_path, events)
    assert (tables.summary["num_kernels"], tables.summary["num_quarantined"]) == (4, 0)
    assert len(set(tables.spans["stream"].to_pylist())) == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CopyDeviceToHost", "DtoH"),
        ("CopyHostToDevice", "HtoD"),
        ("zeCommandListAppendMemoryCopy(M2D)", "HtoD"),
        ("zeCommandListAppendMemoryCopy(D2D)", "DtoD"),
        ("Memcpy Unknown", "unknown"),
    ],
)
def test_copies_of_other_makers_have_their_direction(tmp_path: Path, name: str, kind: str) -> None:
    tables = _read(tmp_path, [_x("gpu_memcpy", name, 1, 2, 7, device=0, stream=7)])
    assert tables.transfers["kind"].tolist() == [kind]
    assert "no_kernels" in _codes(tables)
    assert "busy_ns" not in tables.summary and "kernel_time_ns" not in tables.summary


def test_a_trace_of_another_tool_is_no_gpu_without_activity(tmp_path: Path) -> None:
    span = {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 3, "name": "fusion_1"}
    with pytest.raises(CaptureError, match="none of its 2 events has a category"):
        _read(tmp_path, [span, span])


def test_facts_of_a_gpu_that_cannot_be_are_unknown(tmp_path: Path) -> None:
    gpu = {"id": 0, "name": 5, "numSms": "132", "totalGlobalMem": -1, "computeMajor": 9}
    tables = _read(tmp_path, [_launch(1, 1), _kernel("k", 5, 2, 1)], deviceProperties=[gpu])
    assert tables.gpu == {}


def test_halves_of_surrogate_pairs_are_marked_wherever_they_stand(tmp_path: Path) -> None:
    gpu = {"id": 0, "name": "A\ud800"}
    info = {"backend": "n\ud800", "rank": 0}
    tables = _read(
        tmp_path, [_kernel("k\ud800", 5, 2, 1)], deviceProperties=[gpu], distributedInfo=info
    )
    assert (tables.gpu["name"], tables.kernels["name"][0]) == ("A\ufffd", "k\ufffd")
    assert tables.environment["distributed.backend"] == "n\ufffd"


def _offset_rank(index: int, offset: int, correlation: int, **more: Any) -> list[dict[str, Any]]:
    """Two long kernels or six short ones of a rank, whose process ids a number was added to."""
    sizes = (
        [(100 + 300 * i, 250) for i in range(2)]
        if index
        else [(150 + 50 * i, 20) for i in range(6)]
    )
    events = [_x("user_annotation", "step", 0, 900) | {"pid": 100 + offset}]
    for i, (start, dur) in enumerate(sizes):
        events.append(_launch(10 + i, correlation + i) | {"pid": 100 + offset})
        events.append(_kernel(f"k{index}", start, dur, correlation + i) | {"pid": offset})
    for event in events:
        event["args"] = event["args"] | more
    return events


@pytest.mark.parametrize("first_id", [1, 1001], ids=["the same ids", "other ids"])
@pytest.mark.parametrize("step", [1_000, 10_000])
@pytest.mark.parametrize("is_rank_noted", [True, False])
def test_ranks_told_apart_by_numbers_alone_keep_their_own(
    first_id: int, step: int, is_rank_noted: bool, tmp_path: Path
) -> None:
    noted = [{"rank": 0}, {"rank": 1}] if is_rank_noted else [{}, {}]
    ranks = [*_offset_rank(0, 0, 1, **noted[0]), *_offset_rank(1, step, first_id, **noted[1])]
    loaded = _load(tmp_path, ranks)
    tables = _read(tmp_path, ranks)
    assert [p.rank for p in loaded.trace.sources.processes] == [0, 1]
    assert tables.summary["kernel_time_ns"] == 6 * 20_000 + 2 * 250_000
    assert tables.phases["num_kernels"].tolist() == [6, 2]
    assert set(tables.spans["device"].to_pylist()) == {0, 1}
    assert tables.summary["num_quarantined"] == 0
    assert "colliding_correlation_ids" not in _codes(tables)


@pytest.mark.parametrize("pid", ["rank{}/4711", "Rank {} (4711)", "[TP0{}] 4711", "4711 (rank{})"])
def test_ranks_in_process_names_are_read(pid: str, tmp_path: Path) -> None:
    events = [*_rank(0, pid.format(0), pid.format(0)), *_rank(1, pid.format(1), pid.format(1))]
    loaded = _load(tmp_path, events)
    assert [p.rank for p in loaded.trace.sources.processes] == [0, 1]
    assert (loaded.trace.gpu_ops.launch >= 0).all()


def test_a_path_of_two_ranks_is_one_text_of_the_spans(tmp_path: Path) -> None:
    tables = _read(tmp_path, [*_offset_rank(0, 0, 1), *_offset_rank(1, 1000, 1001)])
    assert tables.spans.to_pandas()["path"].cat.categories.tolist() == ["step"]


def test_process_ids_of_one_hash_take_no_time(tmp_path: Path) -> None:
    prime = (1 << 61) - 1
    events = [_launch(i, i) | {"pid": prime * (i + 1)} for i in range(20_000)]
    assert len(_load(tmp_path, events).trace.sources.processes) == 20_000


def test_many_launch_shapes_stay_apart(tmp_path: Path) -> None:
    events = [_kernel("k", 2 * i, 1, 0, grid=[i + 1, 1, 1]) for i in range(12_000)]
    trace = _load(tmp_path, events).trace
    assert trace.labels[trace.gpu_ops.label[-1]].grid == (12_000, 1, 1)


def test_ids_that_are_no_numbers_do_not_stop_the_reader(tmp_path: Path) -> None:
    events = [
        _launch(1, 1) | {"pid": [1], "tid": {"a": 1}},
        _kernel("k", 5, 2, 1) | {"name": ["k"]},
    ]
    assert _load(tmp_path, events).trace.gpu_ops.launch.tolist() == [0]

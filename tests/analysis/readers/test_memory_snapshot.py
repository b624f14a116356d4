"""The curve is anchored at the final live set; the figures are those of a slow reading apart."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from analysis.memory_curve import rows_to_keep
from analysis.readers import read
from analysis.readers.memory.sites import phase_of_stack, site_of_stack
from analysis.tables import (
    MEMORY_AT_PEAK_COLUMNS,
    MEMORY_POINT_COLUMNS,
    CaptureKind,
    CaptureTables,
)
from captures import pickle_data
from captures.scrub import scrub
from core.errors import CaptureError

MEMORY = Path(__file__).resolve().parents[2] / "data" / "h100" / "memory"


def _event(action: str, addr: int, size: int, time_us: int, **more: Any) -> dict[str, Any]:
    event = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us}
    return event | {"frames": [], "user_metadata": ""} | more


def _block(address: int, size: int, state: str, requested: int | None = None) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": size if requested is None else requested,
        "state": state,
        "frames": [],
    }


def _segment(device: int, address: int, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    live = [b for b in blocks if b["state"] != "inactive"]
    return {
        "device": device,
        "address": address,
        "total_size": sum(b["size"] for b in blocks),
        "active_size": sum(b["size"] for b in live),
        "requested_size": sum(b["requested_size"] for b in live),
        "blocks": blocks,
        "frames": [],
    }


def _read(tmp_path: Path, protocol: int = 4, **parts: Any) -> CaptureTables:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [], **parts}, protocol))
    return read(path)


def _codes(tables: CaptureTables) -> set[str]:
    return {w.code for w in tables.warnings}


def test_training_step_has_the_known_baseline_and_peak() -> None:
    tables = read(MEMORY / "train_fp32.pickle")
    assert tables.memory["baseline_bytes"] == 1_610_621_952
    assert tables.memory["peak_bytes"] == 2_876_290_056
    assert tables.summary == {"peak_memory_bytes": 2_876_290_056}
    assert tuple(tables.memory_points.columns) == MEMORY_POINT_COLUMNS
    assert tables.memory_points["requested_bytes"].max() == 2_876_290_056
    assert {"forward", "backward"} <= set(tables.memory_points["phase"].dropna())


def test_what_is_allocated_counts_blocks_as_the_allocator_does() -> None:
    memory = read(MEMORY / "train_fp32.pickle").memory
    with (MEMORY / "train_fp32.pickle").open("rb") as file:
        segments = pickle.load(file)["segments"]
    blocks = [b for s in segments for b in s["blocks"] if b["state"] != "inactive"]

    assert memory["final_allocated_bytes"] == sum(b["size"] for b in blocks)
    assert memory["final_bytes"] == sum(b["requested_size"] for b in blocks)
    assert memory["peak_bytes"] < memory["peak_allocated_bytes"] <= memory["peak_reserved_bytes"]


def test_what_lived_at_the_peak_adds_up_to_it() -> None:
    tables = read(MEMORY / "train_fp32.pickle")
    assert tuple(tables.memory_at_peak.columns) == MEMORY_AT_PEAK_COLUMNS
    assert tables.memory_at_peak["bytes"].sum() == 2_876_290_056


def test_roles_at_the_peak_of_a_training_step_fit_its_optimizer() -> None:
    sites = read(MEMORY / "train_fp32.pickle").memory_at_peak
    roles = sites.groupby("role")["bytes"].sum()

    assert roles["optimizer state"] == 2 * roles["parameters"]  # AdamW: two moments a parameter
    assert roles["activations"] > roles["parameters"] > roles["workspace"]
    assert (sites[sites["role"] == "activations"]["phase"] == "forward").all()


def test_a_recording_that_ends_in_the_first_forward_does_not_tell_state_from_parameters(
    tmp_path: Path,
) -> None:
    trace = [
        _event("alloc", 0, 40, 1, user_metadata="forward"),
        _event("oom", 0, 900, 2, user_metadata="forward"),
    ]
    blocks = [_block(i * 512, 512, "active_allocated", size) for i, size in ((0, 40), (1, 16))]
    made = {"segments": [_segment(0, 0, blocks)], "device_traces": [trace]}
    sites = _read(tmp_path, **made).memory_at_peak
    assert dict(zip(sites["bytes"], sites["role"].fillna(""), strict=True)) == {
        40: "activations",
        16: "",
    }


def test_roles_follow_from_where_a_block_is_freed(tmp_path: Path) -> None:
    def event(action: str, addr: int, size: int, time_us: int, phase: str) -> dict:
        return _event(action, addr, size, time_us, user_metadata=phase)

    trace = [
        event("alloc", 0, 40, 1, "forward"),
        event("alloc", 512, 8, 2, "forward"),
        event("free_completed", 512, 8, 3, "forward"),
        event("alloc", 512, 16, 4, "backward"),
        event("alloc", 1024, 64, 5, "backward"),
        _event("free_completed", 1024, 64, 6),  # a free has no stack
        event("free_completed", 0, 40, 7, "backward"),
        event("free_completed", 512, 16, 9, "optimizer"),
    ]
    blocks = [_block(i * 512, 512, "active_allocated", 16) for i in (3, 4, 5)]
    tables = _read(tmp_path, segments=[_segment(0, 0, blocks)], device_traces=[trace])
    rows = tables.memory_at_peak.groupby("role")[["bytes", "count"]].sum()
    assert rows["bytes"].to_dict() == {
        "activations": 40,
        "gradients": 16,
        "workspace": 64,
        "parameters": 16,
        "optimizer state": 32,
    }


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        (
            [
                ("_device.py", "__torch_function__"),
                ("linear.py", "__init__"),
                ("gpt.py", "__init__"),
            ],
            "gpt.py:1 __init__",
        ),
        (
            [("/opt/x/site-packages/torch/utils/_device.py", "__torch_function__"), ("a.py", "f")],
            "a.py:1 f",
        ),
        ([("linear.py", "my_own_function")], "linear.py:1 my_own_function"),
    ],
)
def test_a_site_is_the_user_s_frame_and_not_pytorch_s(
    frames: list[tuple[str, str]], site: str
) -> None:
    stack = [{"filename": file, "line": 1, "name": name} for file, name in frames]
    assert site_of_stack(stack) == site


def test_what_lived_before_the_recording_is_a_phase_of_its_own() -> None:
    tables = read(MEMORY / "train_fp32.pickle")
    by_phase = tables.memory_at_peak.groupby("phase")["bytes"].sum()
    assert by_phase["(before the recording)"] == tables.memory["baseline_bytes"]
    assert by_phase.sum() == tables.memory["peak_bytes"]
    assert tables.memory["peak_phase"] == "backward"


def test_code_from_a_string_has_sites_and_phases_too() -> None:
    tables = read(MEMORY / "train_oom.pickle")
    sites = tables.memory_at_peak
    top = sites[sites["phase"] == "forward"].iloc[0]
    assert (top["site"], top["phase"]) == ("<string>:36 forward", "forward")
    assert tables.memory["oom"]["phase"] == tables.memory["peak_phase"] == "forward"


def test_out_of_memory_is_read_with_what_was_asked() -> None:
    tables = read(MEMORY / "train_oom.pickle")
    assert tables.memory["baseline_bytes"] == 1_610_621_952
    assert tables.memory["peak_bytes"] == 3_977_339_904
    assert tables.memory["oom"]["requested_bytes"] == 81_920_000
    assert tables.memory["oom"]["allocated_bytes"] == 3_977_339_904
    assert tables.memory["is_partial"] is True
    assert "partial_history" in _codes(tables)


@pytest.mark.parametrize("protocol", range(6))
def test_memory_is_busy_until_free_completed(protocol: int, tmp_path: Path) -> None:
    trace = [
        _event("alloc", 0, 100, 1),
        _event("free_requested", 0, 100, 2),
        _event("alloc", 512, 50, 3),
        _event("free_completed", 0, 100, 4),
    ]
    blocks = [_block(0, 512, "inactive"), _block(512, 512, "active_allocated", 50)]
    tables = _read(tmp_path, protocol, segments=[_segment(0, 0, blocks)], device_traces=[trace])
    assert tables.memory_points["requested_bytes"].tolist() == [100, 150, 50]
    assert tables.memory_points["allocated_bytes"].tolist() == [512, 1024, 512]
    assert tables.memory["baseline_bytes"] == 0
    assert tables.memory["is_partial"] is False
    assert tables.warnings == ()


def test_overwritten_history_is_partial_and_the_curve_still_right(tmp_path: Path) -> None:
    trace = [_event("free_completed", 0, 300, 1), _event("alloc", 512, 50, 2)]
    blocks = [_block(0, 512, "inactive"), _block(512, 512, "active_allocated", 50)]
    tables = _read(tmp_path, segments=[_segment(0, 0, blocks)], device_traces=[trace])
    assert tables.memory["baseline_bytes"] == tables.memory["peak_bytes"] == 300
    assert tables.memory["is_partial"] is True
    assert "partial_history" in _codes(tables)


def test_expandable_segments_change_what_is_reserved(tmp_path: Path) -> None:
    trace = [
        _event("segment_map", 0, 2048, 1),
        _event("alloc", 0, 1000, 2),
        _event("segment_map", 2048, 2048, 3),
        _event("segment_unmap", 2048, 2048, 4),
    ]
    blocks = [_block(0, 1024, "active_allocated", 1000), _block(1024, 1024, "inactive")]
    tables = _read(tmp_path, segments=[_segment(0, 0, blocks)], device_traces=[trace])
    assert tables.memory_points["reserved_bytes"].tolist() == [2048, 2048, 4096, 2048]
    assert tables.memory["peak_bytes"] == 1000


def test_devices_are_kept_apart(tmp_path: Path) -> None:
    segments = [
        _segment(0, 0, [_block(0, 512, "active_allocated", 10)]),
        _segment(1, 0, [_block(0, 512, "active_allocated", 500)]),
    ]
    traces = [[_event("alloc", 0, 10, 1)], [_event("alloc", 0, 500, 1)]]
    tables = _read(tmp_path, segments=segments, device_traces=traces)
    assert [d["peak_bytes"] for d in tables.memory["devices"]] == [10, 500]
    assert tables.memory["device"] == 1


def test_a_device_without_events_held_what_it_holds(tmp_path: Path) -> None:
    segments = [
        _segment(0, 0, [_block(0, 4096, "active_allocated", 4000)]),
        _segment(1, 1 << 30, [_block(1 << 30, 512, "active_allocated", 500)]),
    ]
    traces = [[], [_event("alloc", 1 << 30, 500, 1)]]
    tables = _read(tmp_path, segments=segments, device_traces=traces)
    assert (tables.memory["device"], tables.summary["peak_memory_bytes"]) == (0, 4000)
    assert tables.memory_at_peak.groupby("device")["bytes"].sum().to_dict() == {0: 4000, 1: 500}


def test_phase_comes_from_annotations_then_the_stack(tmp_path: Path) -> None:
    python = [{"name": "forward", "filename": "/home/x/model.py", "line": 3}]
    trace = [
        _event("alloc", 0, 10, 1, frames=python),
        _event("alloc", 512, 10, 5, frames=python),
        _event("alloc", 1024, 10, 9, user_metadata="prefill"),
    ]
    blocks = [_block(i * 512, 512, "active_allocated", 10) for i in range(3)]
    marks = [
        {"stage": "START", "name": "step", "device": 0, "time_us": 4},
        {"stage": "END", "name": "step", "device": 0, "time_us": 6},
    ]
    tables = _read(
        tmp_path,
        segments=[_segment(0, 0, blocks)],
        device_traces=[trace],
        external_annotations=marks,
    )
    assert tables.memory_points["phase"].tolist() == ["forward", "step", "prefill"]
    assert tables.memory_at_peak["site"].value_counts()["model.py:3 forward"] == 2


def test_sizes_that_contradict_each_other_are_warned_of(tmp_path: Path) -> None:
    trace = [_event("alloc", 0, 100, 1), _event("free_completed", 0, 90, 2)]
    blocks = [_block(0, 512, "inactive")]
    tables = _read(tmp_path, segments=[_segment(0, 0, blocks)], device_traces=[trace])
    assert "inconsistent_snapshot" in _codes(tables)


def test_without_history_no_peak_is_claimed(tmp_path: Path) -> None:
    blocks = [_block(0, 512, "active_allocated", 100)]
    tables = _read(tmp_path, segments=[_segment(0, 0, blocks)], device_traces=[[]])
    assert tables.memory["final_bytes"] == 100
    assert "peak_bytes" not in tables.memory
    assert _codes(tables) == {"no_memory_history"}


@pytest.mark.parametrize(
    "trace",
    [
        [{"action": "alloc", "addr": 0, "size": -1, "time_us": 1}],
        [{"action": "alloc", "addr": 0, "size": 1 << 70, "time_us": 1}],
        [{"action": "alloc", "addr": 0, "size": "big", "time_us": 1}],
        [{"action": "alloc", "addr": 0, "time_us": 1}],
        [{"action": "alloc", "addr": 0, "size": 1, "time_us": 1 << 80}],
        ["alloc"],
        [None],
    ],
)
def test_odd_records_are_one_error(trace: list[Any], tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"snapshot\.pickle: "):
        _read(tmp_path, device_traces=[trace])


def test_lists_that_stand_for_more_events_than_bytes_are_refused(tmp_path: Path) -> None:
    shared = [None] * 5000
    with pytest.raises(CaptureError, match="more events than it has bytes"):
        _read(tmp_path, device_traces=[shared] * 5000)


def test_thinning_keeps_first_last_and_extremes() -> None:
    levels = [(i * 7919) % 100_003 for i in range(60_000)]
    unknown_at_first = [float("nan")] * 30_000 + [float(i % 977) for i in range(30_000)]

    kept = rows_to_keep([levels, unknown_at_first], 5000).tolist()

    assert len(kept) <= 5000 and kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, 59_999)
    assert {max(levels), min(levels)} <= {levels[row] for row in kept}
    assert 976.0 in {unknown_at_first[row] for row in kept}


def test_records_that_lost_a_field_are_warned_of(tmp_path: Path) -> None:
    trace = [_event("alloc", 0, 100, 1), _event("alloc", 512, 100, 2)]
    del trace[1]["time_us"]
    blocks = [_block(i * 512, 512, "active_allocated", 100) for i in range(2)]
    tables = _read(tmp_path, segments=[_segment(0, 0, blocks)], device_traces=[trace])
    assert "inconsistent_snapshot" in _codes(tables)


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([("forward", "/x/site-packages/torch/nn/modules/linear.py")], "forward"),
        ([("step", "/x/site-packages/torch/optim/adamw.py")], "optimizer"),
        ([("backward", "/x/site-packages/torch/_tensor.py"), ("step", "/x/t.py")], "backward"),
        ([("step", "/x/train.py")], None),
        ([("torch::autograd::Engine::thread_main(x)", "??")], "backward"),
        ([], None),
    ],
)
def test_stack_shows_the_phase(frames: list[tuple[str, str]], phase: str | None) -> None:
    stack = [{"name": name, "filename": file, "line": 1} for name, file in frames]
    assert phase_of_stack(stack) == phase


def test_marks_that_a_program_set_itself_change_nothing(tmp_path: Path) -> None:
    segments = [_segment(2, 0, [_block(0, 64, "active_allocated")])]
    events = [_event("segment_alloc", 0, 64, 1), _event("alloc", 0, 64, 2)]
    mark = _event("user_defined", 0, 0, 3, compile_context="N/A")

    plain = _read(tmp_path, segments=segments, device_traces=[[], [], events])
    marked = _read(tmp_path, segments=segments, device_traces=[[mark], [], [mark, *events, mark]])

    assert marked.memory["peak_bytes"] == plain.memory["peak_bytes"] == 64
    assert _codes(marked) == _codes(plain)
    assert "unknown_memory_action" not in _codes(marked)


def test_only_a_snapshot_that_the_scrubber_has_just_written_is_read_without_its_check(
    tmp_path, monkeypatch
):
    """What `captures.scrub` wrote holds plain data; any other file is checked every time."""
    checked = []
    check = pickle_data.check_data_only
    monkeypatch.setattr(
        pickle_data, "check_data_only", lambda data: (checked.append(len(data)), check(data))
    )
    copy = tmp_path / "train_oom.pickle"
    scrub(MEMORY / "train_oom.pickle", CaptureKind.MEMORY_SNAPSHOT, copy)
    num_of_scrub = len(checked)
    own = read(copy, is_own_copy=True)
    assert num_of_scrub == len(checked) == 1
    other = read(copy)
    assert len(checked) == 2
    assert dict(own.memory) == dict(other.memory)
    assert own.memory_at_peak.equals(other.memory_at_peak)

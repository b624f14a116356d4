"""The timeline's thinning, on real spans and on a long made-up stream of them."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.readers.nsys.export import load_nsys
from analysis.trace.records import host_table
from app.ui.timeline.canvas import host_window
from app.ui.timeline.load import (
    Timeline,
    build_timeline,
    load_host_rows,
    load_timeline,
    num_host_rows,
)
from app.ui.timeline.window import (
    MAX_EXACT_SPANS,
    PIXELS,
    window,
)

CAPTURE = Path(__file__).parents[1] / "data/h100/nsys/decode_eager.sqlite"
NO_RANGES = pd.DataFrame(
    {c: [] for c in ("start_ns", "end_ns", "process", "thread", "depth", "name")}
)


def spans_of(start: np.ndarray, dur: np.ndarray, stream: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "start_ns": start,
            "end_ns": start + dur,
            "device": np.zeros(len(start), dtype=np.int32),
            "stream": stream,
            "process": np.zeros(len(start), dtype=np.int32),
            "kind": ["kernel"] * len(start),
            "name": [f"k{i % 7}" for i in range(len(start))],
            "path": pa.nulls(len(start), pa.string()),
            "launch_start_ns": start - 5000,
        }
    )


@pytest.fixture(scope="module")
def eager() -> Timeline:
    with sqlite3.connect(f"file:{CAPTURE}?mode=ro", uri=True) as db:
        rows = pd.read_sql(
            'SELECT start, "end", streamId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start', db
        )
    start = rows["start"].to_numpy()
    dur = rows["end"].to_numpy() - start
    return build_timeline(spans_of(start, dur, rows["streamId"].to_numpy()), NO_RANGES)


@pytest.fixture(scope="module")
def many() -> Timeline:
    size = 120_000
    dur = np.full(size, 900, dtype=np.int64)
    start = np.arange(size, dtype=np.int64) * 1000 - 3_000_000
    return build_timeline(spans_of(start, dur, np.arange(size) % 2), NO_RANGES)


def test_a_real_capture_is_sent_whole(eager: Timeline) -> None:
    view = window(eager)
    assert (view.num_spans, view.is_merged, len(view.spans)) == (380, False, 380)
    assert view.spans["dur"].sum() == 2_184_310


def test_launch_delay_is_from_launch_to_start(eager: Timeline) -> None:
    assert set(window(eager).spans["launch"]) == {5000.0}


def test_joined_spans_keep_every_operation_in_their_counts(many: Timeline) -> None:
    view = window(many)
    assert view.is_merged
    assert view.spans["count"].sum() == view.num_spans == 120_000
    assert len(view.spans) <= len(many.lanes) * (PIXELS + 1)


def test_joined_spans_cover_first_start_to_last_end(many: Timeline) -> None:
    lane = window(many).spans.query("lane == 0")
    assert lane["start"].min() == 0.0
    assert (lane["start"] + lane["dur"]).max() == 119_998 * 1000 + 900


def test_a_small_window_is_exact_and_holds_only_what_it_shows(many: Timeline) -> None:
    view = window(many, 50_000_000, 51_000_000)
    assert not view.is_merged
    ends = view.spans["start"] + view.spans["dur"]
    assert ends.min() > 50_000_000 - 1 and view.spans["start"].max() <= 51_000_000
    assert view.num_spans < MAX_EXACT_SPANS


def test_a_span_that_began_before_the_window_is_in_it() -> None:
    start, dur = np.array([0, 1_000_000]), np.array([900_000, 10])
    found = build_timeline(spans_of(start, dur, np.array([7, 7])), NO_RANGES)
    assert window(found, 500_000, 600_000).spans["start"].to_list() == [0.0]


def test_missing_span_files_are_no_timeline(tmp_path: Path) -> None:
    assert load_timeline((tmp_path / "absent.parquet",)) is None


def test_lanes_are_in_the_order_of_device_and_stream_whatever_their_numbers() -> None:
    stream = np.array([2**40, 7, -3, 7, 2**40])
    spans = spans_of(np.array([5, 3, 9, 1, 2]) * 1000, np.full(5, 10), stream)
    devices = pa.array([1, 0, 1, 1, 1], pa.int32())
    found = build_timeline(
        spans.set_column(spans.column_names.index("device"), "device", devices), NO_RANGES
    )
    assert found.lanes == (
        "device 0, stream 7",
        "device 1, stream -3",
        "device 1, stream 7",
        f"device 1, stream {2**40}",
    )
    lanes = [slice(*found.lane_bounds[i : i + 2]) for i in range(4)]
    starts_us = [(found.start_ns[lane] // 1000 + 1).tolist() for lane in lanes]
    assert starts_us == [[3], [9], [1], [2, 5]]


def test_two_captures_of_a_run_have_lanes_of_their_own(tmp_path: Path) -> None:
    for number in range(2):
        spans = spans_of(np.array([1000, 2000]) + number, np.full(2, 10), np.array([7, 7]))
        pq.write_table(spans, tmp_path / f"{number}.parquet")
    found = load_timeline((tmp_path / "0.parquet", tmp_path / "1.parquet"))
    assert found is not None and found.lanes == ("stream 7", "stream 7")
    assert found.start_ns.tolist() == [0, 1000, 1, 1001]
    assert found.names == ("k0", "k1")


def test_host_threads_are_lanes_of_calls_and_of_operators_by_depth(tmp_path: Path) -> None:
    trace = load_nsys(CAPTURE).trace
    pq.write_table(host_table(trace), tmp_path / "0.host.parquet")

    host = load_host_rows((tmp_path / "0.parquet",))

    assert num_host_rows((tmp_path / "0.parquet",)) == len(trace.host_calls)
    assert [lane.split(", ")[-1] for lane in host.lanes] == ["API calls"]
    assert host.start_ns[-1] - host.start_ns[0] == np.ptp(trace.host_calls.start_ns)
    assert set(host.kinds) == {"API call"}


def test_without_host_rows_there_are_none(tmp_path: Path) -> None:
    assert load_host_rows((tmp_path / "0.parquet",)) is None
    assert num_host_rows((tmp_path / "0.parquet",)) == 0


def test_a_window_of_the_spans_is_one_of_the_host_rows_on_their_own_axis(eager: Timeline) -> None:
    later = replace(eager, origin_ns=eager.origin_ns + 500)

    assert host_window(eager, later, (1_000.0, 3_000.0)) == (500.0, 2_500.0)

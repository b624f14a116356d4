"""A timeline as a Chrome trace holds every span with its time, lane and name."""

import gzip
import json

import pandas as pd
import pyarrow as pa

from app.ui.perfetto import chrome_trace
from app.ui.timeline.load import build_timeline


def spans_of(times: list[tuple[int, int]]) -> pa.Table:
    frame = pd.DataFrame(times, columns=["start_ns", "end_ns"]).assign(
        device=0,
        stream=7,
        process=1,
        kind="kernel",
        name=[f"k{i}" for i in range(len(times))],
        path=None,
        launch_start_ns=None,
        capture=0,
    )
    return pa.Table.from_pandas(frame, preserve_index=False)


def test_spans_that_overlap_on_a_stream_are_on_threads_of_their_own() -> None:
    columns = ["start_ns", "end_ns", "process", "thread", "depth", "name"]
    timeline = build_timeline(
        spans_of([(0, 10), (9, 14), (14, 20), (12, 30)]), pd.DataFrame(columns=columns)
    )
    events = json.loads(gzip.decompress(chrome_trace(timeline, {})))["traceEvents"]
    tids = {e["name"]: e["tid"] for e in events if e["ph"] == "X"}
    # By start: k0 0-10, k1 9-14 (inside k0's time), k3 12-30, k2 14-20.
    assert tids == {"k0": 100, "k1": 101, "k3": 100, "k2": 101}


def test_a_chrome_trace_holds_every_span_and_range() -> None:
    spans = pa.table(
        {
            "start_ns": [5_000, 9_000, 7_500],
            "end_ns": [6_000, 9_500, 9_000],
            "device": [0, 0, 0],
            "stream": [7, 7, 8],
            "process": [1, 1, 1],
            "kind": ["kernel", "kernel", "memcpy"],
            "name": ["k<float>", "k<float>", "copy"],
            "path": ["forward", None, None],
            "launch_start_ns": [4_000.0, 8_000.0, None],
            "capture": [0, 0, 0],
        }
    )
    ranges = pd.DataFrame(
        [(3_000, 9_800, 1, 1, 0, "forward")],
        columns=["start_ns", "end_ns", "process", "thread", "depth", "name"],
    )
    found = json.loads(gzip.decompress(chrome_trace(build_timeline(spans, ranges), {})))
    complete = [e for e in found["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in complete] == [
        ("k<float>", 2.0, 1.0),
        ("k<float>", 6.0, 0.5),
        ("copy", 4.5, 1.5),
        ("forward", 0.0, 6.8),
    ]
    assert [e.get("args") for e in complete[:2]] == [{"range": "forward"}, None]
    threads = {e["args"]["name"] for e in found["traceEvents"] if e["name"] == "thread_name"}
    assert {"stream 7", "stream 8", "thread 1"} == threads

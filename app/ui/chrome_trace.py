"""A run's timeline as a Chrome trace, which Perfetto and chrome://tracing open.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (complete
events `X`, times in microseconds from the first event).
"""

import gzip
import json
from collections.abc import Iterator

import numpy as np

from app.ui.timeline_load import Timeline

_GPU, _HOST = 1, 2
_NS_PER_US = 1e3


def chrome_trace(timeline: Timeline, short_names: dict[str, str]) -> bytes:
    """Return gzip of the JSON: one thread a stream, one a row of ranges."""
    texts = (json.dumps(event, separators=(",", ":")) for event in _events(timeline, short_names))
    body = '{"displayTimeUnit":"ns","traceEvents":[' + ",\n".join(texts) + "]}"
    return gzip.compress(body.encode(), compresslevel=5, mtime=0)


def _events(timeline: Timeline, short_names: dict[str, str]) -> Iterator[dict[str, object]]:
    for pid, name in ((_GPU, "GPU"), (_HOST, "ranges of the host")):
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    for lane, label in enumerate(timeline.lanes):
        yield _thread_name(_GPU, lane, label)
    for row, label in enumerate(timeline.range_rows):
        yield _thread_name(_HOST, row, label or "nested ranges")
    names = [short_names.get(n, n) for n in timeline.names]
    for lane in range(len(timeline.lanes)):
        part = slice(timeline.lane_bounds[lane], timeline.lane_bounds[lane + 1])
        columns = (timeline.start_ns, timeline.end_ns, timeline.name, timeline.path)
        for start, end, name, path in zip(*(c[part].tolist() for c in columns), strict=True):
            args = {"range": timeline.paths[path]} if path >= 0 else {}
            yield _complete(_GPU, lane, names[name], start, end) | {"args": args}
    ranges = timeline.ranges
    rows = (ranges[c].to_numpy() for c in ("start_ns", "end_ns", "row", "name"))
    for start, end, row, name in zip(*(np.asarray(r).tolist() for r in rows), strict=True):
        yield _complete(_HOST, row, str(name), start, end)


def _thread_name(pid: int, tid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}


def _complete(pid: int, tid: int, name: str, start: int, end: int) -> dict[str, object]:
    times = {"ts": start / _NS_PER_US, "dur": (end - start) / _NS_PER_US}
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, **times}

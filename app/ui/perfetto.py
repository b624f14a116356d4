"""One press opens a run's trace in the Perfetto UI that this dashboard serves itself.

The trace is a Chrome trace, which Perfetto and chrome://tracing open. Format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (complete events
`X`, times in microseconds from the first event). Perfetto drops an event that begins inside the one
before it on the same thread without being inside it whole, as kernels of one stream do where the
next is launched early: such events get a thread of their own beside it.
"""

import gzip
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pandas as pd
import streamlit as st

from app.perfetto import PREFIX, why_not
from app.serve.addresses import base_path
from app.ui.timeline.load import Timeline

ADDRESS = f"{base_path()}{PREFIX}/index.html#!/viewer"
"""There the UI waits for a trace; on its first page some builds look for one of their own."""

_HERE = Path(__file__).parent
_COMPONENT = st.components.v2.component(
    "warpboard_perfetto",
    html='<button type="button">Open in Perfetto</button><span role="status"></span>',
    css=(_HERE / "perfetto.css").read_text(encoding="utf-8"),
    js=(_HERE / "perfetto.js").read_text(encoding="utf-8"),
)


def open_or_download(make_trace: Callable[[], bytes], *, title: str, file_name: str) -> None:
    """Draw the download of a trace, before it the button that opens it where that is possible.

    `make_trace` returns gzip of a Chrome trace and is called when a button is pressed.
    """
    reason = why_not()
    bar = st.container(horizontal=True, vertical_alignment="center")
    if not reason:
        with bar:
            _button(make_trace, title, file_name)
    bar.download_button(
        "Chrome trace for Perfetto",
        data=make_trace,
        file_name=file_name,
        mime="application/gzip",
        icon=":material/download:",
        on_click="ignore",
        help="All launches and ranges; opens in Perfetto or chrome://tracing",
    )
    if reason:
        st.caption(reason)


@st.fragment
def _button(make_trace: Callable[[], bytes], title: str, file_name: str) -> None:
    """Send the trace once, in the run that the press caused."""
    key = f"perfetto_{file_name}"
    asked = st.session_state.pop(f"{key}_asked", False)
    data: dict[str, object] = {"address": ADDRESS}
    if asked:
        data |= {
            "title": title,
            "fileName": file_name,
            "trace": pd.DataFrame({"bytes": [make_trace()]}),
        }
    _COMPONENT(key=key, data=data, on_open_change=lambda: _ask(key), width="content")


def _ask(key: str) -> None:
    st.session_state[f"{key}_asked"] = True


_GPU, _HOST = 1, 2
_NS_PER_US = 1e3
_MOST_ROWS = 16
_FIRST_THREAD = 100
"Away from 0, which is the idle thread to Perfetto, and from the process numbers."
Span = tuple[int, int, str, str]
"""Start and end in ns, name, path of ranges."""


def chrome_trace(timeline: Timeline, short_names: dict[str, str]) -> bytes:
    """Return gzip of the JSON: one thread per stream, one per row of ranges."""
    texts = (json.dumps(event, separators=(",", ":")) for event in _events(timeline, short_names))
    body = '{"displayTimeUnit":"ns","traceEvents":[' + ",\n".join(texts) + "]}"
    return gzip.compress(body.encode(), compresslevel=5, mtime=0)


def _events(timeline: Timeline, short_names: dict[str, str]) -> Iterator[dict[str, object]]:
    for pid, name in ((_GPU, "GPU"), (_HOST, "ranges of the host")):
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    names = [short_names.get(n, n) for n in timeline.names]
    tid = _FIRST_THREAD
    for lane, label in enumerate(timeline.lanes):
        part = slice(timeline.lane_bounds[lane], timeline.lane_bounds[lane + 1])
        columns = (timeline.start_ns, timeline.end_ns, timeline.name, timeline.path)
        spans = [
            (start, end, names[name], timeline.paths[path] if path >= 0 else "")
            for start, end, name, path in zip(*(c[part].tolist() for c in columns), strict=True)
        ]
        tid = yield from _threads(_GPU, tid, label, spans)
    for row, label in enumerate(timeline.range_rows):
        in_row = timeline.ranges[timeline.ranges["row"] == row].sort_values("start_ns")
        values = (in_row[c].tolist() for c in ("start_ns", "end_ns", "name"))
        ranges = [(start, end, str(name), "") for start, end, name in zip(*values, strict=True)]
        tid = yield from _threads(_HOST, tid, label or "nested ranges", ranges)


def _threads(
    pid: int, first: int, label: str, spans: Sequence[Span]
) -> Generator[dict[str, object], None, int]:
    """Yield spans (by start) on as many threads as they need; return the next free thread."""
    ends: list[int] = []
    rows = []
    for start, end, _, _ in spans:
        row = next((i for i, until in enumerate(ends) if until <= start), len(ends))
        if row == len(ends) < _MOST_ROWS:
            ends.append(end)
        row = min(row, _MOST_ROWS - 1)
        ends[row] = end
        rows.append(row)
    for row in range(len(ends)):
        name = label if row == 0 else f"{label}, begun before the one above ended"
        common = {"ph": "M", "pid": pid, "tid": first + row}
        yield {**common, "name": "thread_name", "args": {"name": name}}
        yield {**common, "name": "thread_sort_index", "args": {"sort_index": first + row}}
    for row, (start, end, name, path) in zip(rows, spans, strict=True):
        times = {"ts": start / _NS_PER_US, "dur": (end - start) / _NS_PER_US}
        event = {"ph": "X", "pid": pid, "tid": first + row, "name": name, **times}
        yield event | {"args": {"range": path}} if path else event
    return first + len(ends)

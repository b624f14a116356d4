"""A trace whose events carry huge arguments takes memory for a few of them, not for all."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.readers.torch_trace.load import load_trace
from tests.conftest import ROOT

NUM_EVENTS = 40
DEEP = "[" + ",".join(['[{"a":{}}]'] * 40_000) + "]"
"""0.4 MB of text that takes some 18 MB as Python's values."""
READ = r"""
import re, sys
from pathlib import Path
from analysis.readers.torch_trace.load import load_trace
from core.errors import CaptureError
def peak_mb():
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1e3
before_mb = peak_mb()
try:
    load_trace(Path(sys.argv[1]))
except CaptureError:
    pass
print(peak_mb() - before_mb)
"""
KINDS: dict[str, dict[str, Any]] = {
    "collective": {"cat": "kernel", "args": {"Collective name": "x", "Process Group Ranks": 0}},
    "memory": {"ph": "i", "name": "[memory]", "args": {"Bytes": 5, "Addr": 0}},
    "process": {"ph": "M", "name": "process_name", "args": {"labels": 0}},
    "rocprof span": {"args": {"BeginNs": "5", "DurationNs": "5", "Name": 0}},
    "rocprof arrow": {"cat": "DataFlow", "ph": "s", "id": 0},
}


def written(path: Path, kind: str) -> Path:
    """Write a trace of NUM_EVENTS events, each with DEEP where its kind says 0."""
    span = {"ph": "X", "name": "k", "pid": 1, "tid": 1, "ts": 10, "dur": 5}
    first = json.dumps(span | KINDS["rocprof span"]) if "rocprof" in kind else "{}"
    event = json.dumps(span | KINDS[kind]).replace(": 0}", f": {DEEP}}}")
    path.write_text('{"traceEvents": [' + ",".join([first, *[event] * NUM_EVENTS]) + "]}")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_events_with_huge_arguments_are_let_go(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / "trace.json", kind)

    run = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT)

    assert float(done.stdout) < 300


def test_long_ranks_are_text_and_nested_ones_are_no_ranks(tmp_path: Path) -> None:
    span = {"ph": "X", "cat": "kernel", "name": "k", "pid": 1, "tid": 1, "ts": 10, "dur": 5}
    ranks = ([0, 1], "[0, 1, 2]", [{"a": 1}], {"a": 1})
    args = [{"Collective name": "all_reduce", "Process Group Ranks": r} for r in ranks]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [span | {"args": a} for a in args]}))

    trace = load_trace(path).trace

    texts = [trace.names[i] if i >= 0 else None for i in trace.collectives.ranks.tolist()]
    assert texts == ["[0, 1]", "[0, 1, 2]", None, None]


def test_a_name_is_text_of_a_bounded_length_and_shapes_are_of_a_bounded_size(
    tmp_path: Path,
) -> None:
    span = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 10, "dur": 5}
    given: list[tuple[Any, Any]] = [("a" * 10**6, [[2, 3]]), ([1], [[[1]] * 300_000])]
    events = [span | {"name": name, "args": {"Input Dims": dims}} for name, dims in given]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))

    trace = load_trace(path).trace

    ranges = trace.host_ranges
    assert sorted(trace.names[i] for i in ranges.name.tolist()) == ["?", "a" * (1 << 16)]
    assert [trace.names[i] for i in ranges.detail.tolist() if i >= 0] == ["[[2, 3]]"]

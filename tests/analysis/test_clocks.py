"""Traces of several ranks: one clock where they say their own and ran at the same time."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from analysis import side_by_side
from analysis.assemble import assemble
from analysis.bundle import load_paths
from analysis.capture_file import Staging
from analysis.rundata import AssembledRun
from analysis.span_file import SpanFile
from analysis.trace import spans

SECOND_NS = 1_000_000_000
FIRST_BASE_NS = 1_790_000_000 * SECOND_NS


def _trace(folder: Path, name: str, base_ns: int | None, first_us: int) -> Path:
    events: list[dict[str, Any]] = []
    for i in range(3):
        at = {"pid": 10, "ts": first_us + 100 * i, "ph": "X"}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "dur": 2}
        kernel = {
            "cat": "kernel",
            "name": f"kernel_{name}",
            "tid": 7,
            "dur": len(name) + int(name[-1]),
        }
        args = {"device": 0, "stream": 7, "correlation": i + 1}
        events += [at | launch | {"args": args}, at | kernel | {"args": args, "ts": at["ts"] + 3}]
    header = {} if base_ns is None else {"baseTimeNanoseconds": base_ns}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**header, "traceEvents": events}))
    return path


def _run(tmp_path: Path, paths: list[Path]) -> AssembledRun:
    staging = tmp_path / "staging"
    staging.mkdir()
    return assemble(load_paths(paths, Staging(folder=staging)))


def _starts(run: AssembledRun) -> list[int]:
    tables = [c.tables.spans for c in run.captures]
    return sorted(t["start_ns"][0].as_py() for t in tables if t is not None)


def _message(run: AssembledRun) -> str:
    return next(w.warning.message for w in run.warnings if w.warning.code == "captures_added_up")


def test_ranks_that_ran_together_share_one_clock(tmp_path: Path) -> None:
    one = _trace(tmp_path, "rank0", FIRST_BASE_NS, 1000)
    # Its clock starts 1 s later: the same moment has a smaller number.
    other = _trace(tmp_path, "rank1", FIRST_BASE_NS + SECOND_NS, 1050 - 1_000_000)

    run = _run(tmp_path, [one, other])

    assert _starts(run) == [1_003_000, 1_053_000]
    assert "one time axis" in _message(run)
    assert run.summary["num_kernels"] == 6


def test_ranks_whose_operations_lie_in_files_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MAX_ROWS_IN_MEMORY", 0)
    monkeypatch.setattr(side_by_side, "LARGE_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    paths = [
        _trace(tmp_path, f"rank{i}", FIRST_BASE_NS + i * SECOND_NS, 1000 - 1_000_000 * i)
        for i in range(3)
    ]

    run = _run(tmp_path, paths)

    files = [c.tables.spans for c in run.captures]
    assert all(isinstance(file, SpanFile) for file in files)
    tables = [batch for file in files if isinstance(file, SpanFile) for batch in file.batches()]
    assert [t["start_ns"].to_pylist() for t in tables] == [[1_003_000, 1_103_000, 1_203_000]] * 3
    assert {t["launch_start_ns"][0].as_py() for t in tables} == {1_000_000}


@pytest.mark.parametrize("second_base_ns", [None, FIRST_BASE_NS + 60 * SECOND_NS])
def test_traces_without_a_base_or_far_apart_keep_their_own_clock(
    tmp_path: Path, second_base_ns: int | None
) -> None:
    one = _trace(tmp_path, "rank0", FIRST_BASE_NS, 1000)
    other = _trace(tmp_path, "rank1", second_base_ns, 1050)

    run = _run(tmp_path, [one, other])

    assert _starts(run) == [1_003_000, 1_053_000]
    assert "own time axis" in _message(run)

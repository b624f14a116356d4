"""Large captures of one run are read at once, each in a process of its own."""

import os
import signal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from analysis import side_by_side
from analysis.classify import classify
from analysis.classify.rule import compiled
from analysis.readers import prepare_timelines
from analysis.side_by_side import num_at_once, results_of
from analysis.span_file import SpanFile, SpanWriter
from core.errors import AppError, CaptureError, ToolUnavailableError


def raised(error: BaseException) -> None:
    raise error


def test_results_come_in_the_order_of_the_tasks_from_processes_of_their_own() -> None:
    tasks = [partial(lambda n: (n, os.getpid()), n) for n in range(5)]

    results = results_of(tasks, at_once=2)

    assert [result[0] for result in results] == [0, 1, 2, 3, 4]
    pids = {result[1] for result in results}
    assert len(pids) == 5 and os.getpid() not in pids


@pytest.mark.parametrize("at_once", [1, 2])
def test_an_error_of_one_capture_is_a_result_beside_the_others(at_once: int) -> None:
    errors = [
        CaptureError("x.sqlite", "row 3 is cut off", "Export it again"),
        ToolUnavailableError("nsys", "it is not there", "Install it"),
    ]

    results = results_of([*(partial(raised, e) for e in errors), lambda: 7], at_once)

    assert results[2] == 7
    for result, error in zip(results[:2], errors, strict=True):
        assert isinstance(result, AppError)
        assert (type(result), str(result), vars(result)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("task", "error"),
    [
        (partial(raised, MemoryError()), MemoryError),
        (partial(raised, KeyError("x")), RuntimeError),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), ChildProcessError),
        (lambda: os._exit(0), ChildProcessError),
    ],
    ids=["out of memory", "a bug", "killed", "left"],
)
def test_what_is_no_error_of_a_capture_ends_the_reading(task, error) -> None:
    with pytest.raises(error):
        results_of([task, lambda: 1], at_once=2)


def test_small_captures_need_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    paths = [tmp_path / name for name in "abc"]
    for path, num_bytes in zip(paths, (side_by_side.LARGE_BYTES, 9, 10), strict=True):
        path.write_bytes(b"")
        os.truncate(path, num_bytes)
    assert num_at_once(paths) == 1
    os.truncate(paths[1], side_by_side.LARGE_BYTES)
    assert num_at_once([*paths, tmp_path / "gone"]) == 2


def test_the_spans_of_a_large_capture_outlive_the_process_that_read_it(tmp_path: Path) -> None:
    def written() -> SpanFile:
        with SpanWriter(tmp_path) as writer:
            writer.write(pa.table({"start_ns": [1, 2]}))
        return writer.finished()

    file, other = results_of([written, written], at_once=2)

    assert isinstance(file, SpanFile) and isinstance(other, SpanFile)
    assert [batch.to_pydict() for batch in file.batches()] == [{"start_ns": [1, 2]}]
    del file
    assert list(tmp_path.iterdir()) == [other.path]


def test_forked_processes_begin_with_rules_that_are_compiled() -> None:
    compiled.cache_clear()
    prepare_timelines()
    num_compiled = compiled.cache_info().misses

    assert classify("ampere_sgemm_128x64_tn").category == "gemm"
    assert classify("a name that no rule knows").category == "unknown"
    assert 0 < num_compiled == compiled.cache_info().misses

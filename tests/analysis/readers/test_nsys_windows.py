"""Large captures: spans in a file and tables read in small batches give the same numbers."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.readers.nsys import columns
from analysis.readers.nsys.export import load_nsys, read_nsys_sqlite
from analysis.span_file import SpanFile, SpanWriter
from analysis.tables import CaptureTables
from analysis.trace import spans
from analysis.trace.coverage import lost_events_warnings
from analysis.trace.steps import find_steps
from tests.analysis.readers.nsys_files import NSYS, edited

FRAMES = ("kernels", "phases", "api_calls", "transfers", "gaps", "memory_points")
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"


def shuffled(table: str) -> list[str]:
    return [
        f"CREATE TEMP TABLE x AS SELECT * FROM {table} ORDER BY rowid * 7919 % 1009",
        f"DELETE FROM {table}",
        f"INSERT INTO {table} SELECT * FROM x",
        "DROP TABLE x",
    ]


def whole(records: pa.Table | SpanFile | None) -> pd.DataFrame:
    assert records is not None
    table = pa.concat_tables(records.batches()) if isinstance(records, SpanFile) else records
    return table.to_pandas().astype({"kind": str, "name": str, "path": str})


def assert_equal(found: CaptureTables, expected: CaptureTables) -> None:
    assert found.summary == expected.summary and found.memory == expected.memory
    assert found.warnings == expected.warnings
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(found, name), getattr(expected, name))
    shown = ["start_ns", "end_ns", "name", "path", "launch_start_ns"]
    pd.testing.assert_frame_equal(whole(found.spans)[shown], whole(expected.spans)[shown])


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("train_bf16.sqlite", []),
        ("train_bf16.sqlite", shuffled(KERNELS) + shuffled(CALLS)),
        ("streams_and_copies.sqlite", []),
        ("decode_cuda_graph_node.sqlite", []),
        ("decode_cuda_graph_whole.sqlite", []),
        (
            "decode_eager.sqlite",
            ["UPDATE NVTX_EVENTS SET start = start - 90000 WHERE rowid % 3 = 0"],
        ),
    ],
)
def test_windows_and_a_file_change_no_number(tmp_path, monkeypatch, name, statements):
    path = edited(name, tmp_path, statements)
    expected = read_nsys_sqlite(path)

    monkeypatch.setattr(columns, "BATCH_ROWS", 100)
    monkeypatch.setattr(spans, "MAX_ROWS_IN_MEMORY", 0)
    monkeypatch.setattr(spans, "BATCH_ROWS", 256)
    found = read_nsys_sqlite(path, scratch=tmp_path)

    assert isinstance(found.spans, SpanFile)
    assert_equal(found, expected)


def test_nothing_is_left_in_the_scratch_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(spans, "MAX_ROWS_IN_MEMORY", 0)
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    found = read_nsys_sqlite(NSYS / "decode_eager.sqlite", scratch=scratch)
    assert [p.suffix for p in scratch.iterdir()] == [".parquet"]
    del found
    assert list(scratch.iterdir()) == []


def test_a_span_file_is_stored_and_changed_whole(tmp_path: Path):
    with SpanWriter(tmp_path) as writer:
        for first in (0, 10):
            numbers = pa.array(range(first, first + 10), pa.int64())
            writer.write(pa.table({"start_ns": numbers, "process": numbers}))
    records = writer.finished()

    later = records.changed(lambda t: t.set_column(1, "process", pa.array([5] * t.num_rows)))
    later.store(tmp_path / "stored.parquet")

    assert (records.num_rows, records.least("start_ns"), records.greatest("start_ns")) == (
        20,
        0,
        19,
    )
    assert pq.read_table(tmp_path / "stored.parquet")["process"].to_pylist() == [5] * 20


def test_steps_whose_cuda_events_the_profiler_lost_are_said(tmp_path: Path) -> None:
    begins = 88_583_842  # between iteration_0 and iteration_1
    tables = ("KERNEL", "RUNTIME", "MEMCPY", "MEMSET")
    path = edited(
        "train_bf16.sqlite",
        tmp_path,
        [f"DELETE FROM CUPTI_ACTIVITY_KIND_{t} WHERE start > {begins}" for t in tables],
    )

    lost = [w.message for w in read_nsys_sqlite(path).warnings if w.code == "cuda_events_lost"]
    whole = read_nsys_sqlite(NSYS / "train_bf16.sqlite").warnings

    assert len(lost) == 1 and "the last 1 of 2 steps have no CUDA event" in lost[0]
    assert "cuda_events_lost" not in {w.code for w in whole}


def test_lost_steps_of_a_process_that_is_not_known_are_said_of_no_other() -> None:
    trace = load_nsys(NSYS / "train_bf16.sqlite").trace
    steps = find_steps(trace).frame
    lost = steps.assign(process=-1, num_api_calls=[9, 0], num_kernels=[9, 0])

    (warning,) = lost_events_warnings(trace, lost)

    assert warning.message.startswith("unknown process: the last 1 of 2 steps")

"""Captures larger than memory: read window by window, from a file, they give the same numbers."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.readers import nsys_chunks, nsys_columns, nsys_pages, nsys_spans
from analysis.readers.nsys_chunks import Chunks, time_windows
from analysis.readers.nsys_pages import NotPlainError, joined, page_batches
from analysis.readers.nsys_sqlite import read_nsys_sqlite
from analysis.span_file import SpanFile, SpanWriter
from analysis.tables import CaptureTables
from captures.nsys_database import open_nsys
from tests.analysis.readers.nsys_files import NSYS, edited, rows

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


def whole(spans: pa.Table | SpanFile | None) -> pd.DataFrame:
    assert spans is not None
    table = pa.concat_tables(spans.batches()) if isinstance(spans, SpanFile) else spans
    return table.to_pandas().astype({"kind": str, "name": str, "path": str})


def assert_equal(found: CaptureTables, expected: CaptureTables) -> None:
    assert found.summary == expected.summary and found.memory == expected.memory
    assert found.warnings == expected.warnings
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(found, name), getattr(expected, name))
    columns = ["start_ns", "end_ns", "name", "path", "launch_start_ns"]
    pd.testing.assert_frame_equal(whole(found.spans)[columns], whole(expected.spans)[columns])


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

    monkeypatch.setattr(nsys_columns, "BATCH_ROWS", 100)
    monkeypatch.setattr(nsys_columns, "MIN_ROWS_BY_PAGE", 0)
    monkeypatch.setattr(nsys_pages, "BATCH_PAGE_BYTES", 8192)
    monkeypatch.setattr(nsys_chunks, "MEMORY_BYTES", 20_000)
    monkeypatch.setattr(nsys_chunks, "WINDOW_ROWS", 256)
    monkeypatch.setattr(nsys_spans, "MAX_ROWS_IN_MEMORY", 0)
    found = read_nsys_sqlite(path, scratch=tmp_path)

    assert isinstance(found.spans, SpanFile)
    assert_equal(found, expected)


def test_nothing_is_left_in_the_scratch_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(nsys_chunks, "MEMORY_BYTES", 0)
    monkeypatch.setattr(nsys_spans, "MAX_ROWS_IN_MEMORY", 0)
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    found = read_nsys_sqlite(NSYS / "decode_eager.sqlite", scratch=scratch)
    assert [p.suffix for p in scratch.iterdir()] == [".parquet"]
    del found
    assert list(scratch.iterdir()) == []


def test_a_row_comes_in_exactly_one_window():
    rng = np.random.default_rng(1)
    start = rng.integers(-1_000, 1_000, 300_000)
    table = Chunks(None)
    for part in np.array_split(start, 7):
        table.append({"start": part, "end": part + 1})

    windows = [table.between(low, high, ["start"]) for low, high in time_windows([table])]

    seen = np.concatenate([w["start"] for w in windows if w])
    assert len(windows) > 1
    assert np.array_equal(np.sort(seen), np.sort(start))


def test_a_span_file_is_stored_and_changed_whole(tmp_path: Path):
    with SpanWriter(tmp_path) as writer:
        for first in (0, 10):
            numbers = pa.array(range(first, first + 10), pa.int64())
            writer.write(pa.table({"start_ns": numbers, "process": numbers}))
    spans = writer.finished()

    later = spans.changed(lambda t: t.set_column(1, "process", pa.array([5] * t.num_rows)))
    later.store(tmp_path / "stored.parquet")

    assert (spans.num_rows, spans.least("start_ns"), spans.greatest("start_ns")) == (20, 0, 19)
    assert pq.read_table(tmp_path / "stored.parquet")["process"].to_pylist() == [5] * 20


COLUMNS = ("start", "end", "deviceId", "correlationId", "globalPid", "gridX", "graphNodeId")
ODD = [
    "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN more INTEGER",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'seven' WHERE rowid = 300",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET mangledName = zeroblob(9000) WHERE rowid = 300",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 1.5 WHERE rowid = 300",
]


def by_driver(path: Path) -> pd.DataFrame:
    cells = ", ".join(f'CASE WHEN typeof("{c}") = \'integer\' THEN "{c}" END' for c in COLUMNS)
    found = rows(path, f"SELECT {cells} FROM {KERNELS}")
    return pd.DataFrame(found, columns=list(COLUMNS), dtype="Int64")


@pytest.mark.parametrize("statement", [None, *ODD])
def test_pages_give_what_the_driver_gives_or_leave_it(tmp_path, monkeypatch, statement):
    path = edited("train_bf16.sqlite", tmp_path, [statement] if statement else [])
    monkeypatch.setattr(nsys_pages, "BATCH_PAGE_BYTES", 8192)
    with open_nsys(path) as database:
        batches = joined(page_batches(database, KERNELS, COLUMNS), 100)
        found, is_plain = [], True
        try:
            found.extend(batches)
        except NotPlainError:
            is_plain = False

    expected = by_driver(path)
    assert is_plain == (statement is None)
    frames = [b.to_pandas(integer_object_nulls=True).astype("Int64") for b in found]
    got = pd.concat([expected.head(0), *frames], ignore_index=True)
    pd.testing.assert_frame_equal(got, expected.head(len(got)))
    assert len(got) == len(expected) or statement is not None

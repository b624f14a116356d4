"""Records in a temporary file: changed when read or stored, gone when nobody needs them."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis import span_file
from analysis.shift import raised
from analysis.span_file import SpanFile, SpanWriter
from analysis.transfer import write_records


def _file(folder: Path) -> SpanFile:
    batches = [
        pa.table({"start_ns": [10, 20], "process": pa.array([0, -1], pa.int32())}),
        pa.table({"start_ns": [30], "process": pa.array([1], pa.int32())}),
    ]
    with SpanWriter(folder) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.finished()


def _later(batch: pa.Table, ns: int) -> pa.Table:
    if "start_ns" not in batch.column_names:
        return batch
    return batch.set_column(0, "start_ns", pc.add(batch["start_ns"], ns))


def _rows(path: Path) -> list[dict[str, int]]:
    return pq.read_table(path).to_pylist()


def test_changes_are_made_in_one_pass_when_the_records_are_stored(tmp_path, monkeypatch):
    writers = []
    real = pq.ParquetWriter
    monkeypatch.setattr(span_file.pq, "ParquetWriter", lambda *a, **k: _noted(writers, real, a, k))
    file = _file(tmp_path)
    changed = raised(file, "process", 5).changed(partial(_later, ns=100))
    assert len(writers) == 1

    write_records(changed, tmp_path / "kept.parquet")

    assert len(writers) == 2
    assert _rows(tmp_path / "kept.parquet") == [
        {"start_ns": 110, "process": 5},
        {"start_ns": 120, "process": -1},
        {"start_ns": 130, "process": 6},
    ]
    assert pq.read_schema(tmp_path / "kept.parquet") == pq.read_schema(file.path)


def _noted(writers, real, args, settings):
    writers.append(args[0])
    return real(*args, **settings)


def test_changes_count_in_single_columns_and_extremes(tmp_path):
    changed = raised(_file(tmp_path), "process", 5).changed(partial(_later, ns=100))

    assert [b.column_names for b in changed.batches(["start_ns"])] == [["start_ns"]] * 2
    assert (changed.least("start_ns"), changed.greatest("start_ns")) == (110, 130)
    assert changed.greatest("process") == 6


def test_a_file_stays_until_the_last_that_was_made_of_it_is_gone(tmp_path):
    file = _file(tmp_path)
    changed = file.changed(partial(_later, ns=1))
    del file
    assert len(list(tmp_path.iterdir())) == 1
    del changed
    assert list(tmp_path.iterdir()) == []

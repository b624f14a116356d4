"""The files of a stored run: captures as they came, launches as Parquet."""

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.rundata import RunCapture
from analysis.span_file import SpanFile, parquet_settings
from core.config import DataDir


def store_files(
    data_dir: DataDir, run_id: str, captures: Sequence[RunCapture]
) -> list[tuple[str, int] | None]:
    """Move captures to `captures/RUN_ID` and write their launches to `spans/RUN_ID`.

    Returns, for each capture, the Parquet file's path below `spans` and its row count, or None.
    """
    folder = data_dir.captures / run_id
    folder.mkdir(parents=True, exist_ok=True)
    spans_folder = data_dir.spans / run_id
    stored: list[tuple[str, int] | None] = []
    for number, capture in enumerate(captures):
        target = folder / capture.file_name
        if capture.path != target:
            os.replace(capture.path, target)
        if capture.tables.spans is None:
            stored.append(None)
            continue
        spans_folder.mkdir(parents=True, exist_ok=True)
        name = f"{number}.parquet"
        _store_spans(capture.tables.spans, spans_folder / name)
        if capture.tables.ranges is not None:
            _write_parquet(capture.tables.ranges, spans_folder / f"{number}.ranges.parquet")
        stored.append((f"{run_id}/{name}", capture.tables.spans.num_rows))
    return stored


def _store_spans(spans: pa.Table | SpanFile, path: Path) -> None:
    if isinstance(spans, pa.Table):
        _write_parquet(spans, path)
        return
    partial = path.with_suffix(".partial")
    spans.store(partial)
    os.replace(partial, path)


def _write_parquet(table: pa.Table, path: Path) -> None:
    partial = path.with_suffix(".partial")
    pq.write_table(table, partial, **parquet_settings(table.schema))
    os.replace(partial, path)

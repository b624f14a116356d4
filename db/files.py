"""The files of a stored run: captures as they came, launches as Parquet."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.rundata import RunCapture
from core.config import DataDir

if TYPE_CHECKING:
    import pyarrow as pa


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
        _store(capture.tables.spans, spans_folder / name)
        if capture.tables.ranges is not None:
            _store(capture.tables.ranges, spans_folder / f"{number}.ranges.parquet")
        if capture.tables.host is not None:
            _store(capture.tables.host, spans_folder / f"{number}.host.parquet")
        stored.append((f"{run_id}/{name}", capture.tables.spans.num_rows))
    return stored


def _store(records: Any, path: Path) -> None:
    """Write a table, or move a file of records to its place."""
    partial = path.with_suffix(".partial")
    if hasattr(records, "store"):
        records.store(partial)
    else:
        _write_parquet(records, partial)
    os.replace(partial, path)


def _write_parquet(table: "pa.Table", path: Path) -> None:
    import pyarrow.parquet as pq

    from analysis.span_file import parquet_settings

    pq.write_table(table, path, **parquet_settings(table.schema))

"""Store an assembled run: its files, then every number in one transaction.

Doing it again with the same run writes the same rows: what the run had is deleted first, inside the
transaction, so a reader sees the old run or the new one and never a mixture.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlite_utils import Database

from analysis import tables
from analysis.rundata import RUN_SAMPLE_COLUMNS, AssembledRun, NamedClass, RunCapture
from core.config import DataDir
from core.gpus import peak_values
from core.plain_text import cut
from core.states import RunStatus
from db.clock import utc_now
from db.connection import take_numbers
from db.lifecycle import add_events, move

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_PER_CAPTURE = {
    name: tuple(c for c in columns if c != "short_name")
    for name, columns in tables.FRAMES.items()
    if name != "samples" and name not in tables.STEP_TABLES
}
"""Tables whose rows belong to one capture, with the frame's columns that they store."""
_WITHOUT_PASS = frozenset({"counters", "rules", "counter_details", "counter_sources"})


def ingest_run(db: Database, data_dir: DataDir, run_id: str, run: AssembledRun) -> None:
    """Store files and rows of a run that exists; its state moves on when it was `ingesting`.

    Moves the capture files from where they lie to `captures/RUN_ID`. If the transaction fails the
    files of a run that had none before are removed again.
    """
    take_numbers()
    had_files = (data_dir.captures / run_id).exists()
    try:
        spans = store_files(data_dir, run_id, run.captures)
        with db.atomic():
            _delete_rows(db, run_id)
            store_classes(db, run.classes)
            for capture, span in zip(run.captures, spans, strict=True):
                _insert_capture(db, run_id, capture, span)
            _insert_run_rows(db, run_id, run)
            _update_run(db, run_id, run)
    except BaseException:
        if not had_files:
            for root in (data_dir.captures, data_dir.spans):
                shutil.rmtree(root / run_id, ignore_errors=True)
        raise


def insert_imported(
    db: Database,
    data_dir: DataDir,
    run_id: str,
    run: AssembledRun,
    row: Mapping[str, Any],
) -> None:
    """Insert a run from files (`row`: its columns of `runs`) and store it, all or nothing."""
    content_hash = run.data.content_hash
    with db.atomic():
        columns = {
            "id": run_id,
            "created_at": utc_now(),
            "status": run.data.status,
            "content_hash": content_hash,
            **row,
            "name": cut(str(row["name"])),
        }
        names = ", ".join(columns)
        db.conn.execute(
            f"INSERT INTO runs ({names}) VALUES ({_marks(len(columns))})", tuple(columns.values())
        )
        add_events(db, run_id, [(None, "state", f"{row['source']}: {run.data.status}")])
        ingest_run(db, data_dir, run_id, run)


def run_with_content(db: Database, content_hash: str) -> str | None:
    """Return the run that was made from exactly these files, if any."""
    row = db.execute("SELECT id FROM runs WHERE content_hash = ?", [content_hash]).fetchone()
    return row[0] if row else None


def ended_run(db: Database, run_id: str | None) -> str | None:
    """Return `run_id` when that run is here and has a result (a worker's bundle given twice)."""
    row = db.execute(
        "SELECT id FROM runs WHERE id = ? AND status IN ('done', 'oom', 'failed', 'cancelled')",
        [run_id],
    ).fetchone()
    return row[0] if row else None


def import_outcome(db: Database, run_id: str) -> tuple[str, list[str], list[tuple[str, str]]]:
    """Return a run's status, what was removed from its files, and its warnings (code, message)."""
    (status,) = db.execute("SELECT status FROM runs WHERE id = ?", [run_id]).fetchone()
    sql = "SELECT private_removed FROM captures WHERE run_id = ? ORDER BY id"
    rows = db.execute(sql, [run_id]).fetchall()
    removed = dict.fromkeys(what for (text,) in rows for what in json.loads(text or "[]"))
    sql = "SELECT code, message FROM warnings WHERE run_id = ? ORDER BY rowid"
    return status, list(removed), db.execute(sql, [run_id]).fetchall()


def num_ingest_starts(db: Database, run_id: str) -> int:
    """Return how often reading was begun since the run's bundle came."""
    row = db.execute(
        "SELECT count(*) FROM events WHERE run_id = ? AND kind = 'ingest' AND id > coalesce(("
        "SELECT max(id) FROM events WHERE run_id = ? AND kind = 'state' AND message = 'ingesting'"
        "), 0)",
        [run_id, run_id],
    ).fetchone()
    return int(row[0])


def store_classes(db: Database, classes: Sequence[NamedClass]) -> None:
    """Write the class of each name for all runs; the newest rules win."""
    rows = [(c.name, c.short_name, c.category, c.origin, c.confidence, c.rule) for c in classes]
    db.conn.executemany(
        "INSERT INTO kernel_names (name, short_name, category, origin, confidence, rule)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
        " short_name = excluded.short_name, category = excluded.category,"
        " origin = excluded.origin, confidence = excluded.confidence, rule = excluded.rule",
        rows,
    )


def _delete_rows(db: Database, run_id: str) -> None:
    for table in ("captures", "samples", "metrics", "warnings", "environments", "run_ranks"):
        db.conn.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))


def _insert_capture(
    db: Database, run_id: str, capture: RunCapture, span: tuple[str, int] | None
) -> None:
    read = capture.tables
    row = {
        "run_id": run_id,
        "pass": capture.pass_name,
        "process": capture.process,
        "kind": str(read.kind),
        "tool": read.tool,
        "tool_version": read.tool_version,
        "file_name": capture.file_name,
        "bytes": capture.num_bytes,
        "sha256": capture.sha256,
        "source_sha256": capture.source_sha256,
        "spans_path": span[0] if span else None,
        "num_spans": span[1] if span else None,
        "private_removed": json.dumps(list(capture.private_removed)),
        "step_facts": json.dumps(dict(read.step_facts)),
    }
    capture_id = db.conn.execute(
        f"INSERT INTO captures ({', '.join(row)}) VALUES ({_marks(len(row))})", tuple(row.values())
    ).lastrowid
    for name, columns in _PER_CAPTURE.items():
        frame = getattr(read, name)
        if frame is None or not len(frame):
            continue
        shared: dict[str, Any] = {"run_id": run_id, "capture_id": capture_id}
        if name not in _WITHOUT_PASS:
            shared["pass"] = capture.pass_name
        _insert_frame(db, name, frame, columns, shared)
    _insert_step_tables(db, capture_id, read)


def _insert_step_tables(db: Database, capture_id: int | None, read: tables.CaptureTables) -> None:
    for table, columns in tables.STEP_TABLES.items():
        frame = getattr(read, table)
        if frame is not None and len(frame):
            _insert_frame(db, table, frame, columns, {"capture_id": capture_id})


def _insert_frame(
    db: Database,
    table: str,
    frame: "pd.DataFrame",
    columns: Sequence[str],
    shared: Mapping[str, Any],
) -> None:
    quoted = [f'"{c}"' for c in columns]
    _insert_columns(db, table, quoted, [_plain(frame[c]) for c in columns], shared)


def _insert_columns(
    db: Database,
    table: str,
    columns: Sequence[str],
    values: Sequence[Sequence[Any]],
    shared: Mapping[str, Any],
) -> None:
    head = tuple(shared.values())
    names = ", ".join([*shared, *columns])
    db.conn.executemany(
        f"INSERT INTO {table} ({names}) VALUES ({_marks(len(shared) + len(columns))})",
        ((*head, *row) for row in zip(*values, strict=True)),
    )


def _plain(column: "pd.Series[Any]") -> list[Any]:
    """Return Python values with None for what is missing: STRICT tables take no numpy types."""
    values = column.tolist()
    if isinstance(column, list):  # carried from another process: plain values already
        return values
    import pandas as pd

    return [None if v is pd.NA or v != v else v for v in values]


def _insert_run_rows(db: Database, run_id: str, run: AssembledRun) -> None:
    shared = {"run_id": run_id}
    samples = run.data.samples
    if len(samples):
        names, *whole = (samples[c].tolist() for c in RUN_SAMPLE_COLUMNS)
        values = [names, *([int(v) for v in column] for column in whole)]
        _insert_columns(db, "samples", RUN_SAMPLE_COLUMNS, values, shared)
    db.conn.executemany(
        "INSERT OR REPLACE INTO metrics (run_id, pass, phase, name, value, unit, better,"
        " process_values) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                run_id,
                m.pass_name,
                m.phase,
                m.name,
                m.value,
                m.unit,
                m.better,
                json.dumps(m.process_values) if m.process_values else None,
            )
            for m in run.metrics
        ],
    )
    db.conn.executemany(
        "INSERT INTO warnings (run_id, pass, code, message) VALUES (?, ?, ?, ?)",
        [(run_id, w.pass_name, w.warning.code, w.warning.message) for w in run.warnings],
    )
    if run.ranks:
        db.conn.execute("INSERT INTO run_ranks VALUES (?, ?)", (run_id, json.dumps(run.ranks)))
    db.conn.executemany(
        "INSERT INTO environments VALUES (?, ?, ?)",
        [(run_id, name, value) for name, value in run.data.environment.items()],
    )


def _update_run(db: Database, run_id: str, run: AssembledRun) -> None:
    data = run.data
    info: dict[str, Any] = {
        "cost": dict(data.cost),
        "memory": dict(run.memory),
        "passes": list(data.passes),
    }
    info |= {"peaks": peak_values(run.peaks), "gpu": _gpu_facts(data.gpu)}
    info["noise_floor_frac"] = data.gpu.get("noise_floor_frac")
    info["noise_floors"] = data.gpu.get("noise_floors") or {}
    row = {
        "summary": json.dumps(dict(run.summary)),
        **run.columns,
        "info": json.dumps(info),
        "oom": json.dumps(data.oom) if data.oom else None,
        "error": data.error,
        "progress": "{}",
    }
    model = data.gpu.get("model") or data.gpu.get("name")
    row |= {"gpu_model": model} if model else {}
    sets = ", ".join(f"{name} = ?" for name in row)
    moved = db.execute(
        f"UPDATE runs SET {sets}, finished_at = coalesce(?, finished_at, ?),"
        " cancel_requested = 0 WHERE id = ? RETURNING status",
        (*row.values(), data.finished_at, utc_now(), run_id),
    ).fetchone()
    if moved and moved[0] == "ingesting":
        move(db, RunStatus(data.status), "id = ?", [run_id], event=data.status)


def _gpu_facts(gpu: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in gpu.items() if isinstance(v, str | int | float) and v is not None}


def _marks(count: int) -> str:
    return ", ".join("?" * count)


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

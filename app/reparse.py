"""Read the stored captures of runs again: what readers and rules know by now, without a new run."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.bundle import load_bundle, run_of_captures
from analysis.capture_file import Staging, read_capture
from analysis.rundata import RunData
from analysis.tables import CaptureKind
from app.imports import assembled
from captures.manifest import MANIFEST
from core.config import DataDir
from core.errors import AppError, CaptureError
from core.ids import new_id
from db.connection import opened
from db.fetch import captures_of, run_view
from db.ingest import ingest_run
from db.runs import runs_with_captures
from db.status import source_hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reparsed:
    """What reading a run again gave."""

    run_id: str
    changed: tuple[str, ...] = ()
    "Names of the summary's numbers that differ now."
    error: str | None = None
    "Why it could not be read; the stored numbers stay."

    def as_dict(self) -> dict[str, Any]:
        """Return an entry of `reparse --json`."""
        entry = {"run_id": self.run_id, "changed": list(self.changed)}
        return entry if self.error is None else entry | {"error": self.error}


def reparse(data_dir: DataDir, run_ids: Sequence[str] | None = None) -> list[Reparsed]:
    """Read the given runs again, or all that have captures; each run is one transaction."""
    with opened(data_dir.db_path) as db:
        chosen = runs_with_captures(db) if run_ids is None else list(run_ids)
        return [_reparse(db, data_dir, run_id) for run_id in chosen]


def _reparse(db: Any, data_dir: DataDir, run_id: str) -> Reparsed:
    staged = data_dir.ensure().uploads / new_id("i")
    staged.mkdir()
    before = run_view(db, data_dir, run_id)
    try:
        data = _read(db, data_dir, run_id, Staging(folder=staged, keep_private=True))
        _, run = assembled(db, data_dir, data, before.run.gpu_id)
        ingest_run(db, data_dir, run_id, run)
    except AppError as exc:
        return Reparsed(run_id=run_id, error=str(exc))
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    after = run_view(db, data_dir, run_id).summary
    names = sorted({*before.summary, *after})
    changed = tuple(n for n in names if before.summary.get(n) != after.get(n))
    return Reparsed(run_id=run_id, changed=changed)


def _read(db: Any, data_dir: DataDir, run_id: str, staging: Staging) -> RunData:
    folder, rows = data_dir.captures / run_id, captures_of(db, run_id)
    is_bundle = (folder / MANIFEST).is_file()
    data = load_bundle(folder, staging) if is_bundle else _loose(folder, rows, staging)
    sources = source_hashes(db, run_id)
    removed = dict(zip(rows["file_name"], rows["private_removed"], strict=True))
    captures = tuple(
        replace(c, source_sha256=sources[c.file_name], private_removed=removed[c.file_name])
        for c in data.captures
    )
    return replace(data, captures=captures)


def _loose(folder: Path, rows: Any, staging: Staging) -> RunData:
    captures = []
    for row in rows.itertuples():
        path = folder / row.file_name
        if not path.is_file():
            raise CaptureError(path, "the stored capture is gone", "Import the file again")
        read = read_capture(
            path,
            staging,
            row.file_name,
            kind=CaptureKind(row.kind),
            pass_name=rows.loc[row.Index, "pass"],
        )
        captures.append(replace(read, process=int(row.process)))
    return run_of_captures(captures)

"""Import files as one run: stage, read, store. The database is untouched when a file is refused."""

import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.rundata import AssembledRun, RunData
from analysis.tables import CaptureWarning
from core.config import DataDir
from core.errors import UserError
from core.ids import new_id
from core.spec import JobSpec, canonical_json

MAX_NAME = 200
_NAMED: tuple[str, ...] = (
    "preset",
    "mode",
    "implementation",
    "compile",
    "dtype",
    "batch",
    "seq_len",
    "context",
)
_NAMED += ("prompt", "new_tokens", "tokens")
_NAMED_SIZES = ("layers", "d_model", "head_dim", "m", "n", "k", "tile_m", "tile_n", "experts")
"""Params in a run's name; the sizes only where no preset stands for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of an import."""

    run_id: str
    status: str
    is_new: bool
    "False when these very files were imported before: that run is returned."
    warnings: tuple[CaptureWarning, ...]
    removed: tuple[str, ...]
    "Private fields that were taken out of the stored files."

    def as_dict(self) -> dict[str, Any]:
        """Return the document of `import --json`."""
        warnings = [{"code": w.code, "message": w.message} for w in self.warnings]
        return {
            "run_id": self.run_id,
            "status": self.status,
            "is_new": self.is_new,
            "warnings": warnings,
            "removed": list(self.removed),
        }


def import_paths(
    data_dir: DataDir,
    paths: Sequence[Path],
    *,
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    keep_private: bool = False,
    source: str = "imported",
) -> Imported:
    """Store a bundle, or loose files, as one finished run; UserError and CaptureError if refused.

    `params` describe files that do not say what they measured; `workload` among them names it.
    The same contents give the same run again; a name or params given then replace the stored ones.
    """
    from analysis.bundle import content_hash, load_paths
    from analysis.capture_file import Staging
    from db.connection import opened
    from db.ingest import run_with_content

    if not paths:
        raise UserError("import: name at least one file or bundle folder")
    params, name = dict(params or {}), checked_name(name)
    if found := content_hash(paths):  # known files need not be read again
        with opened(data_dir.ensure().db_path) as db:
            if known := run_with_content(db, found):
                return _again(db, known, name, params, source)
    folder = data_dir.ensure().uploads / new_id("i")
    folder.mkdir()
    try:
        data = load_paths(paths, Staging(folder=folder, keep_private=keep_private))
        return _store(data_dir, data, name, params, source, paths)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _store(
    data_dir: DataDir,
    data: RunData,
    name: str | None,
    params: dict[str, Any],
    source: str,
    paths: Sequence[Path],
) -> Imported:
    from db.connection import opened
    from db.ingest import ended_run, insert_imported, run_with_content
    from db.workers import store_gpu

    workload = params.get("workload")
    fields = {k: v for k, v in params.items() if k != "workload"}
    with opened(data_dir.db_path) as db:
        known = ended_run(db, data.run_id) or run_with_content(db, data.content_hash)
        if known is None:
            gpu_key, run = assembled(db, data_dir, data, None)
            row = _row(data, name or _default_name(data, paths), workload, fields, source)
            run_id = new_id()
            try:
                if gpu_key is not None:
                    store_gpu(db, gpu_key, None, _gpu_record(data.gpu))
                insert_imported(db, data_dir, run_id, run, row | {"gpu_id": gpu_key})
                _keep_manifest(data_dir, paths, data, run_id)
                return _result(db, run_id, is_new=True)
            except sqlite3.IntegrityError:
                # The same files were imported by somebody else in this moment.
                known = run_with_content(db, data.content_hash)
                if known is None:
                    raise
        return _again(db, known, name, params, source)


def _again(
    db: Any, known: str, name: str | None, params: Mapping[str, Any], source: str
) -> Imported:
    """Return a run whose files came again, with the name and params that were given now."""
    if source == "imported":  # the examples again leave what the user made of them
        fields = {k: v for k, v in params.items() if k != "workload"}
        _relabel(db, known, name, params.get("workload"), fields)
    return _result(db, known, is_new=False)


def _keep_manifest(data_dir: DataDir, paths: Sequence[Path], data: RunData, run_id: str) -> None:
    """Keep a bundle's manifest too: `reparse` needs what its passes measured themselves."""
    from app.kept_manifest import keep_manifest
    from captures.manifest import load_manifest

    if data.job is not None:
        folder = paths[0] if paths[0].is_dir() else paths[0].parent
        stored = data_dir.captures / run_id
        stored.mkdir(parents=True, exist_ok=True)
        keep_manifest(load_manifest(folder), data, stored)


def assembled(
    db: Any, data_dir: DataDir, data: RunData, gpu_id: str | None
) -> tuple[str | None, AssembledRun]:
    """Return the GPU's key and the run with classes and numbers, by present rules and peaks."""
    from analysis.assemble import assemble
    from db.status import gpu_peaks
    from db.workers import peak_values

    model = data.gpu.get("model") or data.gpu.get("name")
    key = gpu_id or _imported_gpu(data)
    own = peak_values(data.gpu.get("peaks") or {})
    return key, assemble(
        data,
        user_rules=user_rules(data_dir),
        peaks=own or (gpu_peaks(db, key) if _is_one_gpu(key) else {}),
        gpu_model=model,
    )


def _imported_gpu(data: RunData) -> str | None:
    """Return the key of the GPU that files tell of: by its uuid, else by its model."""
    model = data.gpu.get("model") or data.gpu.get("name")
    return f"import/{data.gpu.get('uuid') or model}" if model else None


def _is_one_gpu(key: str | None) -> bool:
    """Say whether a key is of one physical GPU: what files tell only by model may be of several."""
    return key is not None and (not key.startswith("import/") or key.startswith("import/GPU-"))


def user_rules(data_dir: DataDir) -> tuple[Any, ...]:
    """Return the user's own kernel rules (`rules.toml` in the data directory), () if none."""
    if not data_dir.rules_path.exists():
        return ()
    from analysis.classify import load_user_rules

    return tuple(load_user_rules(data_dir.rules_path))


def _row(
    data: RunData, name: str, workload: str | None, params: dict[str, Any], source: str
) -> dict[str, Any]:
    from db.runs import spec_fields

    row: dict[str, Any] = {"name": name, "source": source}
    if data.job is not None:
        merged = {**data.job.params, **params}
        job = JobSpec(
            workload=workload or data.job.workload,
            params=merged,
            profilers=data.job.profilers,
            repeats=data.job.repeats,
            gpu=data.job.gpu,
        )
        row |= spec_fields(job)
    else:
        row |= _described(workload, params)
    return row | {"started_at": data.started_at}


def _described(workload: str | None, params: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"workload": workload, "params": canonical_json(params)}
    if workload is not None:
        row["comparable_hash"] = JobSpec(workload=workload, params=params).comparable_hash
    return row


def _relabel(
    db: Any, run_id: str, name: str | None, workload: str | None, params: dict[str, Any]
) -> None:
    from db.runs import relabel

    if name is not None or workload is not None or params:
        relabel(db, run_id, name=name, workload=workload, params=params)


def _gpu_record(gpu: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": gpu.get("model") or gpu.get("name"), **{k: v for k, v in gpu.items()}}


def _default_name(data: RunData, paths: Sequence[Path]) -> str:
    if data.job is not None:
        return run_name(data.job.workload, data.job.params)
    file_name = _one_line(paths[0].name)
    return file_name.split(".")[0] or file_name or "capture"


def checked_name(name: str | None) -> str | None:
    """Return a given name as one line, None for a blank one; UserError when it is too long."""
    line = _one_line(name or "")
    if len(line) > MAX_NAME:
        raise UserError(f"name: {line[:20]!r}... has {len(line)} characters, at most {MAX_NAME}")
    return line or None


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).strip()


def run_name(workload: str, params: Mapping[str, Any]) -> str:
    """Return a name that tells runs of one workload apart: `decode compile=none dtype=bf16`."""
    has_preset = params.get("preset") not in (None, "", "custom")
    shown = _NAMED if has_preset else (*_NAMED, *_NAMED_SIZES)
    parts = [f"{k}={params[k]}" for k in shown if params.get(k) not in (None, "", "custom")]
    return " ".join([workload, *parts])


def _result(db: Any, run_id: str, *, is_new: bool) -> Imported:
    from db.fetch import captures_of, run_row, warnings_of

    removed = dict.fromkeys(r for row in captures_of(db, run_id)["private_removed"] for r in row)
    return Imported(
        run_id=run_id,
        status=run_row(db, run_id).status,
        is_new=is_new,
        warnings=warnings_of(db, run_id),
        removed=tuple(removed),
    )

"""Import files as one run: stage, read, store. The database is untouched when a file is refused."""

import os
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.rundata import AssembledRun, RunData
from analysis.tables import CaptureWarning
from core.config import DataDir
from core.errors import AppError, CaptureError, UserError
from core.ids import new_id
from core.numbers import listed_texts
from core.program_settings import NO_SETTINGS
from core.spec import JobSpec, canonical_json, check_params, program_name

if TYPE_CHECKING:
    from app.reading import Answer

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
"""Params in a run's name; sizes only where no preset covers them."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The files of one run, and what the importing user says about it."""

    paths: Sequence[Path]
    name: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    "Describe files that do not say what they measured; `workload` among them names it."
    keep_private: bool = False
    relabels: bool = True
    "Whether name and params replace those of a run that these very files made before."
    content_hash: str | None = None
    "Of the files, where it is known already."
    answer: "Answer | None" = None
    "What reading gives, if known: of files that are as they are kept and may be moved away."

    def __post_init__(self) -> None:
        check_params(self.params)
        workload = self.params.get("workload")
        if workload is not None and not isinstance(workload, str):
            raise UserError(f"workload: {workload!r} is not a name")


def import_paths(
    data_dir: DataDir,
    paths: Sequence[Path],
    *,
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    keep_private: bool = False,
) -> Imported:
    """Store a bundle, or loose files, as one finished run; UserError and CaptureError if refused.

    The same contents give the same run again; a name or params given then replace the stored ones.
    """
    given = Given(paths=paths, name=name, params=dict(params or {}), keep_private=keep_private)
    (outcome,) = import_several(data_dir, [given])
    if isinstance(outcome, AppError):
        raise outcome
    return outcome


def import_several(data_dir: DataDir, runs: Sequence[Given]) -> list[Imported | AppError]:
    """Store each as its own run and return the outcomes, in order.

    They are read together in one child; one that is refused does not stop the others.
    """
    outcomes = dict(import_each(data_dir, runs, source="imported"))
    return [outcomes[number] for number in range(len(runs))]


def import_each(
    data_dir: DataDir, runs: Sequence[Given], *, source: str, num_children: int = 1
) -> Generator[tuple[int, Imported | AppError], None, None]:
    """Store each as its own run and give its number and outcome as soon as that is done.

    What is known or refused at once comes first, the others in order while later ones are read.
    """
    from app.reading import read_runs
    from db.connection import opened

    jobs: list[tuple[int, dict[str, Any]]] = []
    with opened(data_dir.ensure().db_path) as db:
        for number, given in enumerate(runs):
            try:
                known = _known(db, given)
                if known is None:
                    jobs.append((number, _job(given)))
                else:
                    yield number, _again(db, known, given, source)
            except AppError as exc:
                yield number, exc
        if not jobs:
            return
        with read_runs(data_dir, db, [job for _, job in jobs], num_children=num_children) as read:
            for (number, _), run in zip(jobs, read, strict=True):
                yield number, _stored(db, data_dir, run, runs[number], source)


def _job(given: Given) -> dict[str, Any]:
    from app.reading import answered_job, file_job

    if given.answer is not None:
        return answered_job(given.paths, given.answer)
    return file_job(given.paths, keep_private=given.keep_private)


def _known(db: Any, given: Given) -> str | None:
    """Return the run of these files, if they were read before. Checks them."""
    from captures.contents import content_hash
    from db.ingest import run_with_content

    if not given.paths:
        raise UserError("import: name at least one file or bundle folder")
    checked_name(given.name)
    sha256 = given.content_hash or content_hash(given.paths)
    return run_with_content(db, sha256) if sha256 else None


def _stored(
    db: Any, data_dir: DataDir, run: AssembledRun | AppError, given: Given, source: str
) -> Imported | AppError:
    if isinstance(run, AppError):
        return run
    try:
        return _store(db, data_dir, run, given, source)
    except AppError as exc:
        return exc


def _store(db: Any, data_dir: DataDir, run: AssembledRun, given: Given, source: str) -> Imported:
    from core.gpus import imported_gpu
    from db.ingest import ended_run, insert_imported, run_with_content
    from db.workers import store_gpu

    data = run.data
    known = ended_run(db, data.run_id) or run_with_content(db, data.content_hash)
    if known is None:
        manifest = None if given.answer else _manifest_of(given, run)
        key = imported_gpu(data.gpu)
        row = _row(data, given, source)
        run_id = new_id()
        try:
            if key is not None:
                store_gpu(db, key, None, _gpu_record(data.gpu))
            insert_imported(db, data_dir, run_id, run, row | {"gpu_id": key})
            if given.answer and data.job is not None:
                _move_manifest(data_dir, given, run_id)
            elif manifest is not None:
                _keep_manifest(data_dir, given, run, run_id, manifest)
            return found(db, run_id, is_new=True)
        except (sqlite3.DatabaseError, OverflowError) as exc:
            if isinstance(exc, sqlite3.OperationalError):
                raise
            # Another process imported the same files meanwhile.
            known = run_with_content(db, data.content_hash)
            if known is None:
                where = f"its run cannot be stored ({exc})"
                raise CaptureError(given.paths[0], where, "Report this with the file") from exc
    return _again(db, known, given, source)


def _again(db: Any, known: str, given: Given, source: str) -> Imported:
    """Return a run whose files came again, with the name and params that were given now."""
    if (
        source == "imported" and given.relabels
    ):  # the examples again leave what the user made of them
        fields = {k: v for k, v in given.params.items() if k != "workload"}
        _relabel(db, known, checked_name(given.name), given.params.get("workload"), fields)
    return found(db, known)


def _manifest_of(given: Given, run: AssembledRun) -> dict[str, Any] | None:
    """Return the manifest of a bundle; CaptureError where it is no longer the one that was read."""
    from captures.contents import hash_of
    from captures.manifest import MANIFEST, load_manifest

    if run.data.job is None:
        return None
    folder = _folder(given)
    manifest = load_manifest(folder)
    if hash_of(manifest) != run.data.content_hash:
        where = "it changed while the bundle was read"
        raise CaptureError(folder / MANIFEST, where, "Import it once it is complete")
    return manifest


def _folder(given: Given) -> Path:
    """Return the folder of a bundle, which may be given by its manifest."""
    return given.paths[0] if given.paths[0].is_dir() else given.paths[0].parent


def _move_manifest(data_dir: DataDir, given: Given, run_id: str) -> None:
    """Move the manifest of a bundle that is as it is kept."""
    from captures.manifest import MANIFEST

    stored = data_dir.captures / run_id
    stored.mkdir(parents=True, exist_ok=True)
    os.replace(_folder(given) / MANIFEST, stored / MANIFEST)


def _keep_manifest(
    data_dir: DataDir, given: Given, run: AssembledRun, run_id: str, manifest: dict[str, Any]
) -> None:
    """Keep a bundle's manifest too: `reparse` needs what its passes measured themselves."""
    from app.kept_manifest import keep_manifest
    from captures.identity import device_salt
    from captures.private import PrivateWords

    stored = data_dir.captures / run_id
    stored.mkdir(parents=True, exist_ok=True)
    words = None if given.keep_private else PrivateWords(salt=device_salt(data_dir.root))
    keep_manifest(manifest, run, stored, words)


def user_rules(data_dir: DataDir) -> tuple[Any, ...]:
    """Return the user's own kernel rules (`rules.toml` in the data directory), () if none."""
    if not data_dir.rules_path.exists():
        return ()
    from analysis.classify import load_user_rules

    return tuple(load_user_rules(data_dir.rules_path))


def _row(data: RunData, given: Given, source: str) -> dict[str, Any]:
    from db.runs import spec_fields

    workload = given.params.get("workload")
    params = {k: v for k, v in given.params.items() if k != "workload"}
    name = checked_name(given.name) or _default_name(data, given.paths)
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
    if workload == "command" and (own := _program(params)):
        return own[:MAX_NAME]
    has_preset = params.get("preset") not in (None, "", "custom")
    shown = _NAMED if has_preset else (*_NAMED, *_NAMED_SIZES)
    parts = [f"{k}={params[k]}" for k in shown if params.get(k) not in (None, "", "custom")]
    return " ".join([workload, *parts])


def _program(params: Mapping[str, Any]) -> str:
    """Return what an own program is called; empty where its parameters do not say."""
    given = _one_line(str(params.get("name") or ""))
    words = listed_texts(params.get("argv"))
    if given or not words:
        return given
    settings = str(params.get("settings") or NO_SETTINGS)
    return _one_line(program_name(words) + (f" {settings}" if settings != NO_SETTINGS else ""))


def found(db: Any, run_id: str, *, is_new: bool = False) -> Imported:
    """Return what became of the import of a run that is here."""
    from db.ingest import import_outcome

    status, removed, warnings = import_outcome(db, run_id)
    return Imported(
        run_id=run_id,
        status=status,
        is_new=is_new,
        warnings=tuple(CaptureWarning(code=code, message=text) for code, text in warnings),
        removed=tuple(removed),
    )

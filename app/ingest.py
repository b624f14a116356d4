"""Read the bundle of a finished run and store it. Runs where the database is."""

import errno
import logging
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from app.kept_manifest import keep_manifest
from app.reading import file_job, read_one
from captures.identity import device_salt
from captures.manifest import MANIFEST, load_manifest
from captures.private import PrivateWords
from core.config import DataDir
from core.errors import AppError
from core.states import RunStatus
from db.connection import opened
from db.ingest import ingest_run, num_ingest_starts
from db.lifecycle import add_events, transition

LOG = logging.getLogger("warpboard.ingest")
MAX_STARTS = 3
MIN_FREE_BYTES = 64 * 2**20
"With less room a run is not read yet: it would fail because of the disk."


def ingest(data_dir: DataDir, run_id: str) -> None:
    """Read what a worker handed in; every failure ends in the run's state, none is raised.

    Does nothing for a run that is not `ingesting`, since the message may come twice, or while the
    disk is full: the dashboard sends the message again.
    """
    with opened(data_dir.db_path) as db:
        row = db.execute("SELECT status, gpu_id FROM runs WHERE id = ?", [run_id]).fetchone()
        if row is None or row[0] != RunStatus.INGESTING:
            return
        if shutil.disk_usage(data_dir.root).free < MIN_FREE_BYTES:
            LOG.warning("run %s: the disk is full; it is read once there is room", run_id)
            return
        if num_ingest_starts(db, run_id) >= MAX_STARTS:
            why = f"reading its captures ended the ingest process {MAX_STARTS} times"
            transition(db, run_id, RunStatus.FAILED, error=why)
            return
        add_events(db, run_id, [(None, "ingest", "reading captures")])
        try:
            _ingest(db, data_dir, run_id, row[1])
        except AppError as exc:
            if is_disk_full(exc):
                LOG.warning("run %s: %s; it is read once there is room", run_id, exc)
                return
            if not _is_wanted(db, run_id):
                why = "cancelled while its captures were read"
                transition(db, run_id, RunStatus.CANCELLED, error=why)
                shutil.rmtree(data_dir.uploads / run_id, ignore_errors=True)
                return
            transition(db, run_id, RunStatus.FAILED, error=f"its captures cannot be read: {exc}")
        except Exception as exc:  # top-level handler: logged, and stored as the run's error
            LOG.exception("run %s", run_id)
            if is_disk_full(exc):
                return
            why = f"reading its captures failed: {type(exc).__name__}: {exc}"
            transition(db, run_id, RunStatus.FAILED, error=why)


def is_disk_full(error: BaseException | None) -> bool:
    """Say whether a full disk caused an error, rather than the run."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(error, sqlite3.OperationalError) and "disk is full" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _ingest(db: Any, data_dir: DataDir, run_id: str, gpu_id: str | None) -> None:
    uploads = data_dir.uploads / run_id
    bundle = uploads / "bundle"
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.mkdir()
    manifest = load_manifest(uploads)
    for entry in manifest["passes"]:
        for capture in entry["captures"]:
            _link(uploads / capture["sha256"], bundle / capture["file"])
    shutil.copyfile(uploads / MANIFEST, bundle / MANIFEST)
    job = {**file_job([bundle]), "gpu_id": gpu_id}
    folder = data_dir.captures / run_id
    with read_one(data_dir, db, job, is_cancelled=lambda: not _is_wanted(db, run_id)) as run:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            # Before the run is done: this process may be killed at any time.
            words = PrivateWords(salt=device_salt(data_dir.root))
            keep_manifest(manifest, run, folder, words)
            ingest_run(db, data_dir, run_id, run)
        except BaseException:
            if is_new:
                shutil.rmtree(folder, ignore_errors=True)
            raise
    shutil.rmtree(uploads, ignore_errors=True)


def _is_wanted(db: Any, run_id: str) -> bool:
    """Say whether a run still waits to be read: it may be cancelled, or deleted, meanwhile."""
    sql = "SELECT status = ? AND NOT cancel_requested FROM runs WHERE id = ?"
    row = db.execute(sql, [RunStatus.INGESTING, run_id]).fetchone()
    return row is not None and bool(row[0])


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

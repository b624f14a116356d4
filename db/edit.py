"""Change what an ended run is called, or delete it with all that belongs to it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from core.errors import UserError
from core.plain_text import cut
from core.spec import JobSpec, canonical_json


def relabel(
    db: Database,
    run_id: str,
    *,
    name: str | None = None,
    workload: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> None:
    """Replace the name and what an imported run is said to have measured; None or {} keeps it."""
    with db.atomic():
        row = db.execute(
            "SELECT name, workload, params FROM runs WHERE id = ?", [run_id]
        ).fetchone()
        merged = {**json.loads(row[2]), **(params or {})}
        workload = workload or row[1]
        spec = JobSpec(workload=workload, params=merged) if workload else None
        db.conn.execute(
            "UPDATE runs SET name = ?, workload = ?, params = ?, comparable_hash = ? WHERE id = ?",
            (
                cut(name or row[0]),
                workload,
                canonical_json(merged),
                spec.comparable_hash if spec else None,
                run_id,
            ),
        )


def delete_runs(db: Database, run_ids: list[str]) -> list[str]:
    """Delete runs that are not at work, with all that belongs to them; return the folders' ids.

    The caller removes `captures/ID` and `spans/ID`. UserError names a run that is still active.
    """
    marks = ", ".join("?" * len(run_ids))
    with db.atomic():
        busy = db.execute(
            f"SELECT id, status FROM runs WHERE id IN ({marks})"
            " AND status IN ('claimed', 'running', 'ingesting')",
            run_ids,
        ).fetchall()
        if busy:
            raise UserError(f"run {busy[0][0]} is {busy[0][1]}: cancel it before deleting")
        db.conn.execute(f"DELETE FROM runs WHERE id IN ({marks})", run_ids)
    return run_ids


def remove_folders(roots: tuple[Path, ...], run_ids: list[str]) -> None:
    """Remove each run's folder under these roots (captures and spans)."""
    for root in roots:
        for run_id in run_ids:
            shutil.rmtree(root / run_id, ignore_errors=True)

"""Apply what the product knows by now to stored runs, without running anything.

`reparse` reads their captures again; `reclassify` applies the present kernel rules to every stored
kernel name and recomputes what follows from that.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from analysis.assemble import class_fractions, classify_names
from analysis.rundata import AssembledRun
from analysis.runview import RunView
from app.imports import user_rules
from app.reading import read_one, stored_job
from core.config import DataDir
from core.errors import AppError
from db.classes import kernel_totals, step_totals, stored_classes, update_fractions
from db.connection import opened
from db.fetch import captures_of, run_view
from db.ingest import ingest_run, store_classes
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
    before = run_view(db, data_dir, run_id)
    folder = data_dir.captures / run_id
    rows = [
        {"file_name": r.file_name, "kind": r.kind, "pass": r[1], "process": int(r.process)}
        for r in captures_of(db, run_id)[["pass", "file_name", "kind", "process"]].itertuples()
    ]
    try:
        with read_one(data_dir, db, stored_job(folder, rows, before.run.gpu_id)) as run:
            ingest_run(db, data_dir, run_id, _as_before(db, run_id, run))
    except AppError as exc:
        return Reparsed(run_id=run_id, error=str(exc))
    old, new = _figures(before), _figures(run_view(db, data_dir, run_id))
    changed = tuple(n for n in sorted({*old, *new}) if old.get(n) != new.get(n))
    return Reparsed(run_id=run_id, changed=changed)


def _figures(view: RunView) -> dict[str, Any]:
    """Return what a run's numbers are compared by: those of its summary, its steps and its ranks.

    As text: an unknown number is equal to itself.
    """
    parts = {"steps": view.by_step.facts, "ranks": view.ranks}
    return {**view.summary, **{name: repr(part) for name, part in parts.items()}}


def _as_before(db: Any, run_id: str, run: AssembledRun) -> AssembledRun:
    """Return the run with what its files were before private fields were removed."""
    rows = captures_of(db, run_id)
    sources = source_hashes(db, run_id)
    removed = dict(zip(rows["file_name"], rows["private_removed"], strict=True))
    captures = tuple(
        replace(c, source_sha256=sources[c.file_name], private_removed=removed[c.file_name])
        for c in run.captures
    )
    return replace(run, captures=captures)


def reclassify(data_dir: DataDir) -> dict[str, Any]:
    """Return num_names, num_changed and num_runs; one transaction, so no page sees half of it."""
    rules = user_rules(data_dir)
    with opened(data_dir.db_path) as db:
        before = stored_classes(db)
        names = {name: known.category == "opaque" for name, known in before.items()}
        after = classify_names(names, rules)
        with db.atomic():
            store_classes(db, after)
            totals = kernel_totals(db)
            for run_id, frame in totals.groupby("run_id"):
                of_step = class_fractions(step_totals(db, str(run_id)))
                update_fractions(db, str(run_id), class_fractions(frame), of_step)
    changed = sum(astuple(before[c.name]) != astuple(c) for c in after)
    num_runs = int(totals["run_id"].nunique())
    return {"num_names": len(after), "num_changed": changed, "num_runs": num_runs}

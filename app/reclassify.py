"""Apply the present kernel rules to every stored name, and what follows from that to every run."""

from dataclasses import astuple
from typing import Any

from analysis.assemble import class_fractions, classify_names
from app.imports import user_rules
from core.config import DataDir
from db.classes import kernel_totals, step_totals, stored_classes, update_fractions
from db.connection import opened
from db.ingest import store_classes


def reclassify(data_dir: DataDir) -> dict[str, Any]:
    """Return num_names, num_changed and num_runs; one transaction, so no page sees half of it."""
    rules = user_rules(data_dir)
    with opened(data_dir.db_path) as db:
        before = stored_classes(db)
        names = {name: found.category == "opaque" for name, found in before.items()}
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

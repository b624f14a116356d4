"""Kernel names with their classes, and the shares of a run that follow from them."""

import json
from collections.abc import Mapping

import pandas as pd
from sqlite_utils import Database

from analysis.rundata import NamedClass
from db.frames import select

FRACTIONS = ("gemm_frac", "attention_frac", "unclassified_frac")
_TOTAL_COLUMNS = ("run_id", "pass", "category", "total_ns", "is_opaque")


def stored_classes(db: Database) -> dict[str, NamedClass]:
    """Return every stored kernel name with its class."""
    rows = db.query("SELECT name, short_name, category, origin, confidence, rule FROM kernel_names")
    return {row["name"]: NamedClass(**row) for row in rows}


def kernel_totals(db: Database) -> pd.DataFrame:
    """Return GPU time by run and category of each run's primary pass.

    Columns: run_id, pass, category, total_ns, is_opaque.
    """
    return select(
        db,
        "SELECT k.run_id, k.pass, n.category, sum(k.total_ns), k.is_opaque FROM kernels k"
        " JOIN kernel_names n ON n.name = k.name WHERE k.pass = CASE WHEN EXISTS"
        " (SELECT 1 FROM captures c WHERE c.run_id = k.run_id AND c.pass = 'nsys')"
        " THEN 'nsys' ELSE 'trace' END GROUP BY k.run_id, k.pass, n.category, k.is_opaque",
        (),
        _TOTAL_COLUMNS,
    )


def step_totals(db: Database, run_id: str) -> pd.DataFrame:
    """Return GPU time of a step by category of the run's leading capture; empty without steps."""
    return select(
        db,
        "SELECT n.category, sum(k.total_ns) AS total_ns, k.is_opaque FROM step_kernels k"
        " JOIN kernel_names n ON n.name = k.name WHERE k.capture_id ="
        " (SELECT c.id FROM captures c WHERE c.run_id = ? AND c.step_facts LIKE '%\"source\"%'"
        " ORDER BY c.pass, c.process, c.id LIMIT 1) GROUP BY n.category, k.is_opaque",
        (run_id,),
        ("category", "total_ns", "is_opaque"),
    )


def update_fractions(
    db: Database, run_id: str, fractions: Mapping[str, float], of_step: Mapping[str, float]
) -> None:
    """Replace a run's GEMM, attention and unclassified shares; one not given becomes unknown.

    Lists show that of a step, where the run has steps.
    """
    listed = of_step or fractions
    row = db.execute("SELECT summary FROM runs WHERE id = ?", [run_id]).fetchone()
    summary = {k: v for k, v in json.loads(row[0]).items() if k not in FRACTIONS}
    db.conn.execute(
        "UPDATE runs SET summary = ?, gemm_frac = ? WHERE id = ?",
        (json.dumps(summary | dict(fractions)), listed.get("gemm_frac"), run_id),
    )
    for name in FRACTIONS:
        if name in fractions:
            db.conn.execute(
                "UPDATE metrics SET value = ? WHERE run_id = ? AND name = ?",
                (fractions[name], run_id, name),
            )

"""What is stored of a capture's steps, operators, idle time and stacks, read back."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sqlite_utils import Database

from analysis.runview import StepView
from db.ingest import STEP_TABLES

_FLAGS = frozenset({"is_regular", "is_opaque"})


def step_view(
    db: Database, run_id: str, primary_pass: str | None, *, is_short: bool = False
) -> StepView:
    """Return the steps of the capture that leads a run: the first of its pass that has some.

    `is_short`: the facts and kernels of a step alone.
    Several captures of a pass are ranks that run the same steps.
    """
    rows = db.execute(
        "SELECT id, step_facts FROM captures WHERE run_id = ? AND pass = ? ORDER BY process, id",
        [run_id, primary_pass],
    ).fetchall()
    known = [(capture_id, json.loads(text)) for capture_id, text in rows if text != "{}"]
    if not known:
        return StepView()
    capture_id, facts = next((k for k in known if "source" in k[1]), known[0])
    wanted = {k: v for k, v in STEP_TABLES.items() if k == "step_kernels" or not is_short}
    frames = {name: _fetch(db, name, columns, capture_id) for name, columns in wanted.items()}
    classes = dict(
        db.execute(
            "SELECT name, category FROM kernel_names"
            " WHERE name IN (SELECT name FROM step_kernels WHERE capture_id = ?)",
            [capture_id],
        ).fetchall()
    )
    kernels = frames.pop("step_kernels")
    kernels["category"] = kernels["name"].map(classes)
    return StepView(facts=facts, kernels=kernels, **frames)


def _fetch(db: Database, table: str, columns: Sequence[str], capture_id: int) -> pd.DataFrame:
    names = ", ".join(f'"{c}"' for c in columns)
    rows = db.execute(
        f"SELECT {names} FROM {table} WHERE capture_id = ? ORDER BY rowid", [capture_id]
    ).fetchall()
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    index = pd.RangeIndex(len(rows))
    arrays = {c: _column(c, v, index) for c, v in zip(columns, values, strict=True)}
    return pd.DataFrame(arrays, index=index, copy=False)


def _column(name: str, values: Sequence[Any], index: pd.RangeIndex) -> Any:
    """Return a column whose whole numbers stay whole where some are missing."""
    if name in _FLAGS:
        return np.array([bool(v) for v in values], dtype=np.bool_)
    known = [v for v in values if v is not None]
    if known and all(isinstance(v, int) for v in known):
        if len(known) < len(values):
            return pd.array(list(values), dtype="Int64")
        return np.array(values, dtype=np.int64)
    if known and isinstance(known[0], float):
        return np.array(values, dtype=np.float64)
    return pd.Series(values, index=index, dtype=object)

"""Clean what was read from a report of NVIDIA's tools, whose file cannot be rewritten.

The stored file keeps what it holds, and the import says so; names, messages and facts that go into
the database are cleaned by the one list of `captures.private`.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.tables import CaptureTables, CaptureWarning
from captures.private import Cleaner, PrivateWords, private_field

_LEARNED_BYTES = 8 << 20
"""How much of the file is read for the names of people and hosts in it."""


def without_private(tables: CaptureTables, report: Path, words: PrivateWords) -> CaptureTables:
    """Return the tables cleaned; `words` also learns from the report's own bytes."""
    with report.open("rb") as file:
        text = file.read(_LEARNED_BYTES).decode("latin-1")
    words.learn(text)
    words.learn_from_paths(text)
    cleaner = Cleaner(words)
    changed: dict[str, Any] = {}
    for field in fields(tables):
        value = getattr(tables, field.name)
        if isinstance(value, pd.DataFrame):
            changed[field.name] = _frame(value, cleaner)
    return replace(
        tables,
        **changed,
        gpu=_facts(tables.gpu, cleaner),
        environment=_facts(tables.environment, cleaner),
        warnings=tuple(
            CaptureWarning(code=w.code, message=cleaner.text(w.message)) for w in tables.warnings
        ),
    )


def _frame(frame: pd.DataFrame, cleaner: Cleaner) -> pd.DataFrame:
    cleaned = {
        name: [cleaner.text(v) if isinstance(v, str) else v for v in column]
        for name, column in frame.items()
        if column.dtype == object or isinstance(column.dtype, pd.StringDtype)
    }
    return frame.assign(**{str(k): pd.Series(v, frame.index, object) for k, v in cleaned.items()})


def _facts(facts: Mapping[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    found = {}
    for name, value in facts.items():
        if name == "uuid" and isinstance(value, str):
            value = cleaner.words.device(value)
        elif isinstance(value, str):
            value = None if private_field(name) else cleaner.text(value)
        if value is not None and value != "":
            found[name] = value
    return found

"""What studies read of each run, kept: working it out takes a hundred times as long."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlite_utils import Database


def kept(
    db: Database, made_of: Mapping[str, str], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return what is kept of runs, by run and name; what was made of something else is not.

    `made_of`: for each run a fingerprint of everything it is computed from.
    """
    rows = db.execute(
        "SELECT run_id, what, made_of, document FROM readings"
        " WHERE run_id IN (SELECT value FROM json_each(?))"
        " AND what IN (SELECT value FROM json_each(?))",
        [json.dumps(list(made_of)), json.dumps(list(names))],
    )
    found: dict[str, dict[str, Any]] = {run_id: {} for run_id in made_of}
    for run_id, name, of, document in rows:
        if made_of[run_id] == of:
            found[run_id][name] = json.loads(document)
    return found


def keep(db: Database, rows: Iterable[tuple[str, str, str, Any]]) -> None:
    """Keep (run id, name, what it was made of, value) in place of what was kept before."""
    with db.atomic():
        db.conn.executemany(
            "INSERT OR REPLACE INTO readings (run_id, what, made_of, document)"
            " SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM runs WHERE id = ?1)",
            [(run_id, name, of, json.dumps(value)) for run_id, name, of, value in rows],
        )


def revisions(db: Database, run_ids: Sequence[str]) -> dict[str, int]:
    """Return for each run a number that is another after its measurements were written."""
    rows = db.execute(
        "SELECT id, revision FROM runs WHERE id IN (SELECT value FROM json_each(?))",
        [json.dumps(list(run_ids))],
    )
    return dict(rows)

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


def lacking(db: Database, name: str, of: str, *, newest: int) -> list[str]:
    """Return which of the newest ended runs do not have this said of what they are now."""
    rows = db.execute(
        "SELECT id FROM (SELECT id, revision, created_at FROM runs"
        " WHERE status IN ('done', 'oom') ORDER BY created_at DESC, id DESC LIMIT :newest) r"
        " WHERE NOT EXISTS (SELECT 1 FROM readings WHERE run_id = r.id AND what = :name"
        " AND made_of = :of || ' ' || r.revision) ORDER BY created_at DESC, id DESC",
        {"newest": newest, "name": name, "of": of},
    )
    return [run_id for (run_id,) in rows]


def say_done(db: Database, name: str, of: str, run_ids: Sequence[str]) -> None:
    """Say this of runs as they are now; see `lacking`."""
    with db.atomic():
        db.execute(
            "INSERT OR REPLACE INTO readings (run_id, what, made_of, document)"
            " SELECT id, ?, ? || ' ' || revision, 'null' FROM runs"
            " WHERE id IN (SELECT value FROM json_each(?))",
            [name, of, json.dumps(list(run_ids))],
        )

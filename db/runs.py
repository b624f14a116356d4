"""Runs: insert, list, find, rename, delete; what people attach to them: tags, notes, the pin."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlite_utils import Database

from core.errors import UserError
from core.ids import new_id
from core.plain_text import cut
from core.spec import JobSpec, canonical_json
from core.states import RunStatus
from db.clock import utc_now
from db.lifecycle import add_events, move
from db.search import compile_query, param_keys

if TYPE_CHECKING:
    import pandas as pd

LIST_COLUMNS = (
    "id",
    "name",
    "status",
    "source",
    "workload",
    "params",  # dict
    "gpu_model",
    "gpu_id",
    "device_id",  # the physical GPU (gpus.id) that it must be executed on
    "profilers",  # tuple of str
    "repeats",
    "latency_ms",
    "latency_lo_ms",
    "latency_hi_ms",
    "num_samples",
    "kernel_time_ns",  # of the whole capture
    "step_kernel_ns",  # of a step
    "idle_frac",
    "idle_source",  # clean, steps or profiled
    "gemm_frac",
    "peak_memory_bytes",
    "tags",  # str, ", " between
    "notes",
    "is_baseline",
    "sweep_id",
    "created_at",
    "started_at",
    "finished_at",
    "worker_id",
    "attempt",
    "progress",  # dict
    "error",
)
"""A row per run; NaN, <NA> or None is unknown. `latency_lo_ms`, `latency_hi_ms`: 95 % interval."""

_EXPRESSIONS = {
    "tags": "coalesce((SELECT group_concat(tag, ', ') FROM"
    " (SELECT tag FROM tags t WHERE t.run_id = r.id ORDER BY tag)), '')",
    "is_baseline": "EXISTS (SELECT 1 FROM baselines b WHERE b.run_id = r.id)",
}
SORTABLE = frozenset(LIST_COLUMNS) - {"params", "progress", "profilers"}


PROFILED = "profiled"
"""Source of a run that `warpboard profile` measured and sent."""
NOT_HERE_YET = "its files have not arrived: the worker that measured it sends them"


def insert_run(
    db: Database,
    *,
    spec: JobSpec | None,
    name: str,
    sweep_id: str | None = None,
    source: str = "submitted",
) -> str:
    """Insert a queued run and return its id."""
    run_id = new_id()
    row: dict[str, Any] = {"id": run_id, "name": cut(name), "source": source}
    row |= {"sweep_id": sweep_id}
    row |= {"status": str(RunStatus.QUEUED), "created_at": utc_now()}
    if spec is not None:
        row |= spec_fields(spec)
    with db.atomic():
        top = db.execute("SELECT coalesce(max(position), 0) FROM runs").fetchone()[0]
        db.table("runs").insert(row | {"position": top + 1})
        add_events(db, run_id, [(None, "state", "queued")])
    return run_id


def expect_run(db: Database, spec: JobSpec, name: str, label: str) -> tuple[str, int]:
    """Add a run that was measured elsewhere and whose bundle comes now; return its id and attempt.

    It belongs to the token `label`: nobody else may bring its files.
    """
    with db.atomic():
        run_id = insert_run(db, spec=spec, name=name, source=PROFILED)
        fields = {"error": NOT_HERE_YET, "progress": {"token": label}}
        move(db, RunStatus.INTERRUPTED, "id = ?", [run_id], event=NOT_HERE_YET, fields=fields)
        attempt = db.execute("SELECT attempt FROM runs WHERE id = ?", [run_id]).fetchone()[0]
    return run_id, int(attempt)


def spec_fields(spec: JobSpec) -> dict[str, Any]:
    """Return the columns of `runs` that a job spec fills."""
    return {
        "workload": spec.workload,
        "params": canonical_json(dict(spec.params)),
        "spec": canonical_json(spec.as_dict()),
        "spec_hash": spec.spec_hash,
        "comparable_hash": spec.comparable_hash,
        "gpu_model": spec.gpu,
        "device_id": spec.device,
        "profilers": json.dumps(list(spec.profilers)),
        "repeats": spec.repeats,
    }


def insert_sweep(db: Database, name: str | None = None) -> str:
    """Insert a sweep and return its id."""
    sweep_id = new_id("s")
    db.table("sweeps").insert({"id": sweep_id, "name": name, "created_at": utc_now()})
    return sweep_id


def last_sweep(db: Database, workloads: Sequence[str]) -> tuple[list[JobSpec], str] | None:
    """Return the jobs of the newest sweep of these workloads and its time; None without one."""
    marks = ",".join("?" * len(workloads))
    newest = db.execute(
        "SELECT sweep_id, created_at FROM runs WHERE source = 'submitted' AND spec IS NOT NULL"
        f" AND sweep_id IS NOT NULL AND workload IN ({marks}) ORDER BY id DESC LIMIT 1",
        list(workloads),
    ).fetchone()
    if newest is None:
        return None
    specs = db.execute("SELECT spec FROM runs WHERE sweep_id = ? ORDER BY position", [newest[0]])
    return [JobSpec.from_dict(json.loads(spec)) for (spec,) in specs], str(newest[1])


def list_runs(
    db: Database,
    query: str | None = None,
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 100,
    offset: int = 0,
) -> "pd.DataFrame":
    """Return `list_rows` as a frame."""
    from db.frames import build

    rows = _listed(db, query, sort, descending, limit, offset)
    return build([tuple(row.values()) for row in rows], LIST_COLUMNS)


def list_rows(
    db: Database,
    query: str | None = None,
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """Return one mapping per run (LIST_COLUMNS), unknown values left out and sorted last.

    QuerySyntaxError for the query, UserError for the sort.
    """
    rows = _listed(db, query, sort, descending, limit, offset)
    return [{k: v for k, v in row.items() if v is not None} for row in rows]


def _listed(
    db: Database, query: str | None, sort: str, descending: bool, limit: int, offset: int
) -> list[dict[str, Any]]:
    if sort not in SORTABLE:
        raise UserError(f"sort: {sort!r} is not one of {', '.join(sorted(SORTABLE))}")
    clause = compile_query(query)
    columns = ", ".join(_EXPRESSIONS.get(c, f"r.{c}") + f" AS {c}" for c in LIST_COLUMNS)
    key = sort if sort in _EXPRESSIONS else f"r.{sort}"
    way = "DESC" if descending else "ASC"
    # The newest of equal rows first: ids sort by creation time.
    order = f"{key} {way}" if sort == "created_at" else f"{key} IS NULL, {key} {way}"
    cursor = db.execute(
        f"SELECT {columns} FROM runs r WHERE {clause.sql} ORDER BY {order}, r.id DESC"
        " LIMIT ? OFFSET ?",
        (*clause.params, limit, offset),
    )
    rows = [dict(zip(LIST_COLUMNS, row, strict=True)) for row in cursor]
    for row in rows:
        for name in ("params", "progress", "profilers"):
            row[name] = json.loads(row[name])
        row["profilers"] = tuple(row["profilers"])
        row["is_baseline"] = bool(row["is_baseline"])
    return rows


def metric_values(
    db: Database, run_ids: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return run -> name -> value of stored metrics, `NAME:PHASE` where one has a phase."""
    marks = ", ".join("?" * len(names))
    full = "CASE phase WHEN '' THEN name ELSE name || ':' || phase END"
    values: dict[str, dict[str, float]] = {}
    for run_id in run_ids if names else ():
        rows = db.execute(
            f"SELECT {full}, value FROM metrics WHERE run_id = ? AND {full} IN ({marks})"
            " ORDER BY pass = 'clean'",
            (run_id, *names),
        )
        values[run_id] = dict(rows.fetchall())
    return values


def count_runs(db: Database, query: str | None = None) -> int:
    """Return how many runs a filter matches."""
    clause = compile_query(query)
    row = db.execute(f"SELECT count(*) FROM runs r WHERE {clause.sql}", clause.params).fetchone()
    return int(row[0])


def unknown_fields(db: Database, query: str | None) -> tuple[str, ...]:
    """Return the filter's keys that are neither a field nor a parameter of any stored run."""
    keys = param_keys(query)
    if not keys:
        return ()
    known = {
        row[0].lower()
        for row in db.execute("SELECT DISTINCT e.key FROM runs r, json_each(r.params) e")
    }
    return tuple(k for k in keys if k not in known)


def runs_with_captures(db: Database) -> list[str]:
    """Return the ended runs that have a stored capture, oldest first."""
    rows = db.execute(
        "SELECT id FROM runs WHERE status IN ('done', 'oom', 'failed', 'cancelled')"
        " AND id IN (SELECT run_id FROM captures) ORDER BY created_at, id"
    )
    return [run_id for (run_id,) in rows]


def resolve_run(db: Database, text: str) -> str:
    """Return the id that `text` names: an id, a unique name, or a unique start of an id.

    UserError when nothing or more than one run fits; the message lists the candidates.
    """
    text = text.strip()
    exact = db.execute("SELECT id FROM runs WHERE id = ?", (text,)).fetchone()
    if exact:
        return str(exact[0])
    rows = db.execute(
        "SELECT id, name FROM runs WHERE name = ? OR (? <> '' AND substr(id, 1, length(?)) = ?)"
        " ORDER BY name = ? DESC, created_at DESC LIMIT 6",
        (text, text, text, text, text),
    ).fetchall()
    fitting = [row for row in rows if row[1] == text] or rows
    if len(fitting) == 1:
        return str(fitting[0][0])
    if not rows:
        raise UserError(f"run {text!r}: no run has this id or name; `runs` lists them")
    named = ", ".join(f"{run_id} ({name})" for run_id, name in rows[:5])
    more = ", ..." if len(rows) > 5 else ""
    raise UserError(f"run {text!r}: several runs fit: {named}{more}; give the id")


def resolve_runs(db: Database, text: str) -> list[str]:
    """Return the runs that `text` names; UserError.

    One run, several with commas between, or all finished ones that a filter matches.
    """
    try:
        return [resolve_run(db, text)]
    except UserError as single:
        if not any(mark in text for mark in ":<>="):
            parts = [part.strip() for part in text.split(",") if part.strip()]
            if len(parts) < 2:
                raise
            return list(dict.fromkeys(resolve_run(db, part) for part in parts))
        run_ids = list_runs(db, f"{text} status:done,oom", limit=1000)["id"].tolist()
        if not run_ids:
            raise UserError(f"{text!r}: no finished run matches this filter") from single
        return run_ids


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


MAX_TAG_CHARS = 64
MAX_NOTES_CHARS = 20_000


def set_tags(
    db: Database, run_id: str, add: Iterable[str], remove: Iterable[str] = ()
) -> list[str]:
    """Add and remove tags and return what the run then has, sorted; UserError for a bad tag."""
    added = [_tag(t) for t in add]
    with db.atomic():
        db.conn.executemany(
            "INSERT OR IGNORE INTO tags (run_id, tag) VALUES (?, ?)", [(run_id, t) for t in added]
        )
        db.conn.executemany(
            "DELETE FROM tags WHERE run_id = ? AND tag = ?", [(run_id, t.strip()) for t in remove]
        )
    rows = db.execute("SELECT tag FROM tags WHERE run_id = ? ORDER BY tag", (run_id,))
    return [row[0] for row in rows]


def _tag(text: str) -> str:
    tag = text.strip()
    if not tag or len(tag) > MAX_TAG_CHARS or any(c in ',"' or c.isspace() for c in tag):
        raise UserError(
            f"tag: {text!r} is not a word of 1 to {MAX_TAG_CHARS} characters without comma or quote"
        )
    return tag


def set_notes(db: Database, run_id: str, notes: str) -> None:
    """Replace a run's notes; UserError when they are too long."""
    if len(notes) > MAX_NOTES_CHARS:
        raise UserError(f"notes: {len(notes)} characters are more than {MAX_NOTES_CHARS}")
    db.conn.execute("UPDATE runs SET notes = ? WHERE id = ?", (notes, run_id))
    db.conn.commit()


def pin(db: Database, run_id: str) -> None:
    """Make a run the baseline of its workload, params and GPU; it replaces the earlier one."""
    row = db.execute(
        "SELECT comparable_hash, gpu_model, status FROM runs WHERE id = ?", (run_id,)
    ).fetchone()
    if row is None or row[2] not in ("done", "oom"):
        raise UserError(f"run {run_id}: only a finished run can be a baseline")
    if row[0] is None:
        raise UserError(
            f"run {run_id}: its workload is not known; import it with --set workload=NAME to pin it"
        )
    db.table("baselines").upsert(
        {
            "comparable_hash": row[0],
            "gpu_model": row[1] or "",
            "run_id": run_id,
            "pinned_at": utc_now(),
        },
        pk=("comparable_hash", "gpu_model"),
    )


def unpin(db: Database, run_id: str) -> None:
    """Take a run's baseline mark away."""
    db.conn.execute("DELETE FROM baselines WHERE run_id = ?", (run_id,))
    db.conn.commit()

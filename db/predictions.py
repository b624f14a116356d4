"""Predictions that were tried, joined with what was measured."""

import json
from dataclasses import dataclass, fields

from sqlite_utils import Database

from db.clock import utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A prediction that was put to the test."""

    run_id: str
    run_name: str
    gpu_model: str
    base_ms: float | None
    outcome_run_id: str
    status: str
    "Of the run that measures it."
    measured_ms: float | None
    "None until that run has a latency."
    made_at: str
    experiment: str
    kind: str
    model_version: int
    predicted_ns: float
    low_ns: float
    high_ns: float


def keep_prediction(
    db: Database,
    *,
    run_id: str,
    outcome_run_id: str,
    experiment: str,
    kind: str,
    model_version: int,
    predicted_ns: float,
    low_ns: float,
    high_ns: float,
) -> None:
    """Keep a prediction as it is now, with the run that will measure it."""
    db.table("predictions").insert(
        {
            "run_id": run_id,
            "outcome_run_id": outcome_run_id,
            "experiment": experiment,
            "kind": kind,
            "model_version": model_version,
            "made_at": utc_now(),
            "predicted_ns": predicted_ns,
            "low_ns": low_ns,
            "high_ns": high_ns,
        }
    )


def tried(db: Database, run_id: str | None = None) -> list[Tried]:
    """Return the predictions of a run, or all, newest first."""
    where = "" if run_id is None else " WHERE p.run_id = ?"
    columns = [f.name for f in fields(Tried)]
    rows = db.execute(
        "SELECT p.run_id, b.name, coalesce(b.gpu_model, 'cpu'), b.latency_ms, p.outcome_run_id,"
        " o.status, o.latency_ms, p.made_at, p.experiment, p.kind, p.model_version,"
        " p.predicted_ns, p.low_ns, p.high_ns FROM predictions p"
        " JOIN runs b ON b.id = p.run_id JOIN runs o ON o.id = p.outcome_run_id"
        f"{where} ORDER BY p.id DESC",
        [] if run_id is None else [run_id],
    ).fetchall()
    return [Tried(**dict(zip(columns, row, strict=True))) for row in rows]


def score_stamp(db: Database) -> int:
    """Return a number that changes when measured runs or predictions change."""
    row = db.execute(
        "SELECT count(*), max(rowid), total(latency_ms), (SELECT count(*) FROM predictions)"
        " FROM runs WHERE latency_ms > 0"
    ).fetchone()
    return hash(tuple(row))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """Runs of one job on one GPU model."""

    workload: str
    gpu_model: str
    comparable_hash: str
    run_ids: tuple[str, ...]
    "Newest first, those with kernels before the others."
    latencies_ms: tuple[float, ...]
    is_example: bool
    "Whether all of them are example runs."


def measured_jobs(db: Database) -> list[MeasuredJob]:
    """Return every job with a measured latency, and the runs that measured it."""
    rows = db.execute(
        "SELECT workload, coalesce(gpu_model, 'cpu'), comparable_hash, json_group_array(id),"
        " json_group_array(latency_ms), min(source = 'demo') FROM (SELECT * FROM runs"
        " WHERE latency_ms > 0 AND workload IS NOT NULL AND comparable_hash IS NOT NULL"
        " AND status = 'done' ORDER BY kernel_time_ns IS NULL, created_at DESC, id)"
        " GROUP BY 1, 2, 3"
    ).fetchall()
    return [
        MeasuredJob(
            workload=workload,
            gpu_model=gpu_model,
            comparable_hash=digest,
            run_ids=tuple(json.loads(ids)),
            latencies_ms=tuple(json.loads(latencies)),
            is_example=bool(is_example),
        )
        for workload, gpu_model, digest, ids, latencies, is_example in rows
    ]

"""How the predictions of experiments fared, over every pair of jobs in the database."""

import dataclasses
import hashlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.advice.constants import MODEL_VERSION
from analysis.advice.experiments import NO_MODEL, Experiment
from analysis.advice.score import (
    MAX_MEDIAN_ERROR_FRAC,
    MIN_INSIDE_FRAC,
    AssumedWidths,
    Outcome,
    is_held_out,
    records_of,
)
from analysis.runview import RunView
from app.advice import hash_with, made_for, tried_outcomes, views_of
from app.kept import keep, made_of
from app.submit import CPU
from core.config import DataDir
from db import Database, readings
from db.fetch import ALL_BUT_SAMPLES
from db.predictions import MeasuredJob, measured_jobs, tried

PREDICTIONS = "predictions"
"""Under which name the predictions of a run are kept."""


def score_document(db: Database, data_dir: DataDir) -> dict[str, Any]:
    """Return the document of `advise --score`: the record of each kind and every pair behind it."""
    outcomes = [*pair_outcomes(db, data_dir), *tried_outcomes(db)]
    return {
        "model_version": MODEL_VERSION,
        "limits": {
            "median_error_frac": MAX_MEDIAN_ERROR_FRAC,
            "inside_frac": MIN_INSIDE_FRAC,
        },
        "kinds": [
            dataclasses.asdict(r) | {"is_poor": r.is_poor, "is_known": r.is_known}
            for r in records_of(outcomes).values()
        ],
        "overall": _overall(outcomes),
        "pairs": [
            dataclasses.asdict(x) | {"error_frac": x.error_frac, "is_inside": x.is_inside}
            for x in outcomes
        ],
        "not_offered": [{"name": n, "reason": r} for n, r in NO_MODEL.items()],
    }


def _overall(outcomes: Sequence[Outcome]) -> dict[str, float] | None:
    """Return the score over all kinds; None without a pair."""
    if not outcomes:
        return None
    num_inside = sum(x.is_inside for x in outcomes)
    return {
        "num_pairs": len(outcomes),
        "num_inside": num_inside,
        "inside_frac": num_inside / len(outcomes),
        "median_error_frac": statistics.median(abs(x.error_frac) for x in outcomes),
    }


def pair_outcomes(db: Database, data_dir: DataDir, *, held_out: bool = True) -> list[Outcome]:
    """Return what the models say of every pair of jobs in the database, from the base's run alone.

    A job counts once: its base is the newest run with kernels, its outcome the median over its
    runs. Pairs whose runs are all examples count if they are held out (or, `held_out` false, if
    they are those that set constants). Pairs that were tried are left to `tried`.
    """
    jobs = measured_jobs(db)
    by_key = {(j.gpu_model, j.comparable_hash): j for j in jobs}
    done = {(t.run_id, t.experiment) for t in tried(db)}
    bases = [job.run_ids[0] for job in jobs]
    views = views_of(db, data_dir, bases, ALL_BUT_SAMPLES | {"samples"})
    predictions = _predictions(db, data_dir, jobs, views)
    outcomes = []
    for job, view in zip(jobs, views, strict=True):
        is_out = is_held_out(view.run.gpu_model, view.run.workload, view.run.params)
        for made in predictions[view.run.id]:
            after = by_key[job.gpu_model, made.comparable_hash]
            if (view.run.id, made.experiment) in done:
                continue
            if (is_out or not (job.is_example and after.is_example)) == held_out:
                outcomes.append(_outcome(view, made, after))
    return outcomes


@dataclasses.dataclass(frozen=True, slots=True)
class _Made:
    """What was predicted of one experiment of a run whose outcome is measured."""

    kind: str
    experiment: str
    comparable_hash: str
    "Of the outcome's job."
    predicted_ns: float
    low_ns: float
    high_ns: float


def _predictions(
    db: Database, data_dir: DataDir, jobs: Sequence[MeasuredJob], views: Sequence[RunView]
) -> Mapping[str, Sequence[_Made]]:
    """Return the predictions from each job's run to the measured jobs of its GPU model.

    They are kept until the run, the models or those jobs are others.
    """
    measured: dict[str, set[str]] = {}
    for job in jobs:
        measured.setdefault(job.gpu_model, set()).add(job.comparable_hash)
    targets = {model: _digest(sorted(hashes)) for model, hashes in measured.items()}
    of = made_of(db, views)
    models = {view.run.id: job.gpu_model for job, view in zip(jobs, views, strict=True)}
    of = {run_id: f"{of[run_id]} {targets[models[run_id]]}" for run_id in of}
    kept = readings.kept(db, of, [PREDICTIONS])
    new = [run_id for run_id in of if PREDICTIONS not in kept[run_id]]
    for view in views_of(db, data_dir, new):
        run, others = view.run, measured[models[view.run.id]]
        kept[run.id][PREDICTIONS] = [
            (e.kind, e.name, hash_with(run, e.params), *_bounds(e))
            for e in made_for(view, AssumedWidths(), others)
        ]
    if new:
        keep(db, [(i, PREDICTIONS, of[i], kept[i][PREDICTIONS]) for i in new])
    return {run_id: [_Made(*row) for row in rows[PREDICTIONS]] for run_id, rows in kept.items()}


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:16]


def _bounds(experiment: Experiment) -> tuple[float, float, float]:
    interval = experiment.prediction
    return float(interval.latency_ns), float(interval.low_ns), float(interval.high_ns)


def _outcome(view: RunView, made: _Made, after: MeasuredJob) -> Outcome:
    return Outcome(
        kind=made.kind,
        experiment=made.experiment,
        gpu_model=view.run.gpu_model or CPU,
        base=view.run.name,
        predicted_ns=made.predicted_ns,
        low_ns=made.low_ns,
        high_ns=made.high_ns,
        measured_ns=statistics.median(after.latencies_ms) * 1e6,
        base_ns=view.summary["latency_ms"]["median"] * 1e6,
        model_version=MODEL_VERSION,
    )

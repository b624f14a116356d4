"""Experiments of a stored run, trying them, and the score of all predictions, for pages and CLI."""

import dataclasses
import json
import statistics
from collections.abc import Container, Mapping, Sequence
from typing import Any

from analysis.advice.constants import MODEL_VERSION
from analysis.advice.experiments import (
    UNTRIED,
    WITHHELD,
    Experiment,
    experiments_of,
    not_offered,
)
from analysis.advice.score import (
    Outcome,
    Record,
    records_of,
    shipped_outcomes,
)
from analysis.runview import RunRow, RunView
from analysis.verdict import is_cpu_run
from app.job_text import profile_command, submit_command
from app.submit import (
    CPU,
    OWN_PROGRAM,
    Target,
    plan_jobs,
    resolve_gpus,
    submit_jobs,
    target_of_own_program,
)
from core.config import DataDir
from core.errors import UserError
from core.spec import JobSpec
from db import Database
from db.fetch import NOT_IN_A_STUDY, run_row, run_views
from db.predictions import MeasuredJob, Tried, keep_prediction, measured_jobs, tried
from db.status import gpus

MIN_REPEATS = 3
"""Processes that measure an outcome: one process says little about the next."""
ALL = "all"
_NOT_NEEDED = NOT_IN_A_STUDY | {"samples", "profiled_samples", "phases", "counters"}
Key = tuple[str, str]
"""GPU model and comparable hash: names a job on a GPU."""


def known_records(db: Database) -> dict[str, Record]:
    """Return the record of each kind: the example data's held-out pairs and what was tried here."""
    return records_of([*shipped_outcomes(), *tried_outcomes(db)])


def tried_outcomes(db: Database) -> list[Outcome]:
    """Return the predictions that were tried and measured, as they were made."""
    return [
        Outcome(
            kind=t.kind,
            experiment=t.experiment,
            gpu_model=t.gpu_model,
            base=t.run_name,
            predicted_ns=t.predicted_ns,
            low_ns=t.low_ns,
            high_ns=t.high_ns,
            measured_ns=t.measured_ms * 1e6,
            base_ns=t.base_ms * 1e6,
            model_version=t.model_version,
        )
        for t in tried(db)
        if t.measured_ms and t.base_ms
    ]


def advice_of(db: Database, data_dir: DataDir, run_id: str) -> dict[str, Any]:
    """Return the document of `advise --json`: the experiments of a run and their outcomes."""
    (advice,) = advice_of_several(db, data_dir, [run_id])
    return advice | {"not_tried": why_not_tried(db, run_row(db, run_id))}


def advice_of_several(
    db: Database, data_dir: DataDir, run_ids: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the documents of several runs, but for why none can be queued."""
    records = known_records(db)
    measured = {(j.gpu_model, j.comparable_hash): j for j in measured_jobs(db)}
    return [_advice(db, view, records, measured) for view in views_of(db, data_dir, run_ids)]


def _advice(
    db: Database,
    view: RunView,
    records: Mapping[str, Record],
    measured: Mapping[tuple[str, str], MeasuredJob],
) -> dict[str, Any]:
    experiments = made_for(view, records)
    before = {t.experiment: t for t in reversed(tried(db, view.run.id))}
    return {
        "kind": "predicted",
        "run_id": view.run.id,
        "name": view.run.name,
        "gpu": view.run.gpu_model,
        "latency_ms": (view.summary.get("latency_ms") or {}).get("median"),
        "model_version": MODEL_VERSION,
        "experiments": [_document(view.run, e, before.get(e.name), measured) for e in experiments],
        "not_offered": [
            {"name": name, "reason": reason}
            for name, reason in not_offered(
                view.run.workload,
                view.run.params,
                _choices(view.run.workload),
                is_cpu=is_cpu_run(view),
            ).items()
        ],
        "note": None if experiments else _why_none(view),
    }


def try_experiments(
    db: Database, data_dir: DataDir, run_id: str, names: Sequence[str]
) -> list[tuple[Experiment, str]]:
    """Queue the jobs of experiments, keep their predictions; return each with its run's id.

    `all` is every one that is offered or untried. UserError for a name that is not there, for lines
    of a program, for a program that no host allows, and where no worker has the run's GPU.
    """
    view = _view(db, data_dir, run_id)
    chosen = _chosen(made_for(view, known_records(db)), names)
    target = _target(db, view.run)
    queued = []
    for experiment in chosen:
        jobs = plan_jobs(
            str(view.run.workload),
            {k: [v] for k, v in {**view.run.params, **experiment.params}.items()},
            [target],
            [p for p in view.run.profilers if p != "ncu"],
            max(MIN_REPEATS, view.run.repeats),
        )
        name = f"{view.run.name}: {_change_text(experiment)}"
        (outcome_run_id,) = submit_jobs(db, data_dir, jobs, name).run_ids
        keep_prediction(
            db,
            run_id=run_id,
            outcome_run_id=outcome_run_id,
            experiment=experiment.name,
            kind=experiment.kind,
            model_version=experiment.model_version,
            predicted_ns=experiment.prediction.latency_ns,
            low_ns=experiment.prediction.low_ns,
            high_ns=experiment.prediction.high_ns,
        )
        queued.append((experiment, outcome_run_id))
    return queued


def why_not_tried(db: Database, run: RunRow) -> str | None:
    """Return why no job of this run's workload can be queued for its GPU; None where one can."""
    try:
        _target(db, run)
    except UserError as error:
        return str(error)
    return None


def _change_text(experiment: Experiment) -> str:
    """Return a change as a job's name shows it: `compile=default`, `CUDA_MODULE_LOADING=EAGER`."""
    settings = " ".join(f"{name}={value}" for name, value in experiment.environment.items())
    return settings or experiment.name


def _view(db: Database, data_dir: DataDir, run_id: str) -> RunView:
    (view,) = views_of(db, data_dir, [run_id])
    return view


def views_of(
    db: Database,
    data_dir: DataDir,
    run_ids: Sequence[str],
    leave_out: frozenset[str] = _NOT_NEEDED,
) -> list[RunView]:
    """Return runs; one without measured peaks takes those of another GPU of the model."""
    known: dict[str, Any] = {}
    for gpu in gpus(db).itertuples():
        if gpu.peaks:
            known.setdefault(gpu.model, gpu.peaks)
    return [
        view
        if view.peaks
        else dataclasses.replace(view, peaks=known.get(view.run.gpu_model or "", {}))
        for view in run_views(db, data_dir, run_ids, leave_out=leave_out)
    ]


def made_for(
    view: RunView, records: Mapping[str, Record], measured: Container[str] | None = None
) -> list[Experiment]:
    """Return the experiments of a run; with `measured`, those to jobs of these hashes alone."""

    def is_wanted(params: Mapping[str, Any]) -> bool:
        if measured is None:
            return _checked(view.run, params) is not None
        return hash_with(view.run, params) in measured

    experiments = experiments_of(view, _choices(view.run.workload), records, is_wanted)
    return experiments if measured is None else [e for e in experiments if e.params]


def _choices(workload: str | None) -> dict[str, tuple[Any, ...]]:
    """Return the values that each field of a workload may take; {} for one that is not known."""
    from workloads.registry import load_workloads

    spec = load_workloads().get(workload or "")
    return {f.name: tuple(f.choices) for f in spec.fields} if spec and not spec.error else {}


def _checked(run: RunRow, params: Mapping[str, Any]) -> dict[str, Any] | None:
    from workloads.registry import parse_params

    try:
        return parse_params(str(run.workload), params, gpu_is_cpu=(run.gpu_model or CPU) == CPU)
    except UserError:
        return None


def hash_with(run: RunRow, change: Mapping[str, Any]) -> str:
    """Return the hash of a run's job with other params; "" where nothing changes."""
    if not change:
        return ""
    params = _checked(run, {**run.params, **change}) or {}
    return JobSpec(workload=str(run.workload), params=params).comparable_hash


def _target(db: Database, run: RunRow) -> Target:
    if run.workload is None:
        raise UserError(
            f"run {run.id} came without its program: run that with the setting, or with the lines "
            "changed, by `./warpboard profile`"
        )
    (target, *_) = resolve_gpus(db, run.gpu_model or CPU)
    if run.workload != OWN_PROGRAM:
        return target
    try:
        return target_of_own_program(db, target.model, _words(run))
    except UserError as error:
        raise UserError(
            f"{error}; type the command that stands beside the experiment instead"
        ) from error


def _words(run: RunRow) -> list[str]:
    try:
        words = json.loads(str(run.params.get("argv") or "[]"))
    except ValueError:
        words = []
    return [str(word) for word in words] if isinstance(words, list) else []


def _chosen(experiments: Sequence[Experiment], names: Sequence[str]) -> list[Experiment]:
    if ALL in names:
        return [e for e in experiments if e.status != WITHHELD and e.params and e.is_worth_a_run]
    by_name = {e.name: e for e in experiments}
    unknown = [n for n in names if n not in by_name]
    if unknown:
        listed = ", ".join(by_name) or "none"
        raise UserError(f"experiment: {unknown[0]!r} is not one of this run's: {listed}")
    by_hand = [n for n in names if not by_name[n].params]
    if by_hand:
        raise UserError(
            f"experiment: {by_hand[0]} is a change that no job can make: "
            "`./warpboard advise RUN` shows what to type"
        )
    return [by_name[n] for n in names]


def _document(
    run: RunRow,
    experiment: Experiment,
    before: Tried | None,
    measured: Mapping[Key, MeasuredJob],
) -> dict[str, Any]:
    now = experiment.prediction
    record = experiment.record
    document: dict[str, Any] = {
        "name": experiment.name,
        "kind": experiment.kind,
        "title": experiment.title,
        "params": dict(experiment.params),
        "environment": dict(experiment.environment),
        "lines": list(experiment.lines),
        "status": experiment.status,
        "predicted_ms": {
            "median": now.latency_ns / 1e6,
            "low": now.low_ns / 1e6,
            "high": now.high_ns / 1e6,
        },
        "gain_frac": experiment.gain_frac,
        "is_worth_a_run": experiment.is_worth_a_run,
        "decided_by": now.decided_by,
        "evidence": list(experiment.evidence),
        "record": None if record is None else dataclasses.asdict(record),
        "note": _note(experiment),
    }
    if experiment.environment and run.params.get("argv"):
        profilers = [p for p in run.profilers if p != "ncu"]
        document["command"] = profile_command(
            run.params, profilers, max(MIN_REPEATS, run.repeats), experiment.environment
        )
    elif experiment.params:
        params = _checked(run, {**run.params, **experiment.params})
        document["command"] = submit_command(run.job | {"params": params})
    document["tried"] = None if before is None else _tried_document(before)
    job_runs = measured.get((run.gpu_model or CPU, hash_with(run, experiment.params)))
    if before is None and job_runs is not None:
        measured_ms = statistics.median(job_runs.latencies_ms)
        document["measured"] = {
            "run_id": job_runs.run_ids[0],
            "latency_ms": measured_ms,
            "is_inside": now.low_ns <= measured_ms * 1e6 <= now.high_ns,
        }
    return document


def _tried_document(before: Tried) -> dict[str, Any]:
    document: dict[str, Any] = {
        "run_id": before.outcome_run_id,
        "status": before.status,
        "made_at": before.made_at,
        "model_version": before.model_version,
        "predicted_ms": {
            "median": before.predicted_ns / 1e6,
            "low": before.low_ns / 1e6,
            "high": before.high_ns / 1e6,
        },
    }
    if before.measured_ms:
        measured_ns = before.measured_ms * 1e6
        document["measured_ms"] = before.measured_ms
        document["error_frac"] = before.predicted_ns / measured_ns - 1
        document["is_inside"] = before.low_ns <= measured_ns <= before.high_ns
    return document


def _note(experiment: Experiment) -> str:
    record = experiment.record
    if record is None:
        return "nobody has measured a change of this kind yet: the interval is an assumption"
    if experiment.status == UNTRIED:
        off = f"{100 * record.median_error_frac:.0f} % off"
        return f"one prediction of this kind was measured, {off}: the interval is an assumption"
    error, inside = (f"{100 * f:.0f} %" for f in (record.median_error_frac, record.inside_frac))
    text = (
        f"{record.num_outcomes} predictions of this kind were measured: median error {error}, "
        f"{inside} inside the interval"
    )
    if experiment.status == WITHHELD:
        return f"not offered, the record is poor: {text}"
    return text


def _why_none(view: RunView) -> str:
    if not view.summary.get("latency_ms"):
        return "the run has no clean latency to predict from"
    if view.kernels.empty:
        return "the run has no kernels to predict from: record an nsys or trace pass"
    return "no change that has a model applies to this run"

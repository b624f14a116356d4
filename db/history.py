"""Jobs that were measured more than once, and their finished runs in the order of time.

With them the repeats of a comparison: runs whose jobs ran in turn, A B A B.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from analysis.runview import Job, PastRun
from core.errors import UserError
from db.runs import resolve_run, resolve_runs
from db.search import compile_query

JOB = "coalesce(r.comparable_hash, 'name:' || r.name)"
"""A run's job in SQL, beside the GPU's model: see `core.spec.comparable_hash`."""
AT = "coalesce(r.started_at, r.created_at)"
BAD_TAG = "bad"
"""Runs with this tag are not a base for a comparison."""
LAST = "last:"
MAX_LAST = 100
_FIGURES = {
    "latency_ms.median": "r.latency_ms",
    "latency_ms.fast": "r.summary ->> '$.latency_ms.fast'",
    "iteration_kernel_ns": "r.summary ->> '$.iteration_kernel_ns'",
    "kernel_time_ns": "r.kernel_time_ns",
    "peak_memory_bytes": "r.peak_memory_bytes",
    "num_kernels": "r.summary ->> '$.num_kernels'",
}
_STEP_FIGURES = {"step.kernel_ns": "kernel_ns", "step.num_launches": "num_launches"}


def jobs(db: Database, query: str | None = None, *, min_runs: int = 2) -> list[Job]:
    """Return the jobs of the finished runs that a filter matches, the newest run's first.

    Every finished run of such a job counts towards `min_runs`, whether it matches or not.
    """
    clause = compile_query(query)
    rows = db.execute(
        f"SELECT {JOB}, coalesce(r.gpu_model, ''), count(*), max({AT}), count(r.latency_ms)"
        " FROM runs r"
        f" WHERE r.status = 'done' AND ({JOB}, coalesce(r.gpu_model, '')) IN"
        f" (SELECT {JOB}, coalesce(r.gpu_model, '') FROM runs r"
        f"  WHERE r.status = 'done' AND {clause.sql})"
        " GROUP BY 1, 2 HAVING count(*) >= ? ORDER BY 4 DESC",
        (*clause.params, min_runs),
    ).fetchall()
    return [_job(db, *row) for row in rows]


def job_of(db: Database, run_id: str) -> Job:
    """Return the job of a run, with the number of its finished runs."""
    key, gpu_model = db.execute(
        f"SELECT {JOB}, coalesce(r.gpu_model, '') FROM runs r WHERE r.id = ?", [run_id]
    ).fetchone()
    counted = db.execute(
        f"SELECT count(*), coalesce(max({AT}), ''), count(r.latency_ms) FROM runs r"
        f" WHERE {JOB} = ?"
        " AND coalesce(r.gpu_model, '') = ? AND r.status = 'done'",
        [key, gpu_model],
    ).fetchone()
    return _job(db, key, gpu_model, *counted)


def _job(
    db: Database, key: str, gpu_model: str, num_runs: int, newest_at: str, num_timed: int
) -> Job:
    workload, params, name = db.execute(
        f"SELECT r.workload, r.params, r.name FROM runs r WHERE {JOB} = ?"
        f" AND coalesce(r.gpu_model, '') = ? ORDER BY {AT} DESC, r.rowid DESC LIMIT 1",
        [key, gpu_model],
    ).fetchone()
    return Job(
        key=key,
        gpu_model=gpu_model,
        workload=workload,
        params=json.loads(params),
        name=name,
        num_runs=num_runs,
        num_timed=num_timed,
        newest_at=newest_at,
    )


def jobs_named(db: Database, text: str) -> list[Job]:
    """Return the jobs that a run, several, or a filter names; UserError where none fits.

    A name that several runs have names the jobs of all of them.
    """
    rows = db.execute("SELECT id FROM runs WHERE name = ? AND status = 'done'", [text.strip()])
    named = [run_id for (run_id,) in rows.fetchall()]
    jobs = [job_of(db, run_id) for run_id in named or resolve_runs(db, text)]
    return list({(job.key, job.gpu_model): job for job in jobs}.values())


def why_not_counted(db: Database, text: str) -> str | None:
    """Return the status of the one run that is named, where it is no part of its job's history."""
    try:
        run_id = resolve_run(db, text)
    except UserError:
        return None
    (status,) = db.execute("SELECT status FROM runs WHERE id = ?", [run_id]).fetchone()
    return None if status == "done" else str(status)


def past_runs(db: Database, job: Job) -> list[PastRun]:
    """Return the finished runs of a job, the oldest first; those of one moment as stored."""
    figures = ", ".join(_FIGURES.values())
    rows = db.execute(
        f"SELECT r.id, r.name, {AT}, (SELECT c.step_facts FROM captures c WHERE c.run_id = r.id"
        "  AND c.step_facts <> '{}' ORDER BY c.pass <> 'nsys', c.process, c.id LIMIT 1),"
        " (SELECT group_concat(t.tag, ',') FROM tags t WHERE t.run_id = r.id),"
        f" {figures} FROM runs r WHERE {JOB} = ? AND coalesce(r.gpu_model, '') = ?"
        f" AND r.status = 'done' ORDER BY {AT}, r.created_at, r.rowid",
        [job.key, job.gpu_model],
    )
    return [_past_run(*row) for row in rows.fetchall()]


def _past_run(
    run_id: str, name: str, at: str, step_facts: str | None, tags: str | None, *values: Any
) -> PastRun:
    facts = json.loads(step_facts) if step_facts else {}
    figures = dict(zip(_FIGURES, values, strict=True))
    figures |= {key: facts.get(name) for key, name in _STEP_FIGURES.items()}
    return PastRun(
        run_id=run_id,
        name=name,
        at=at,
        figures={key: float(value) for key, value in figures.items() if value is not None},
        tags=tuple(sorted(tags.split(","))) if tags else (),
    )


def resolve_base(db: Database, text: str, against: Sequence[str]) -> list[str]:
    """Return the runs of the base side; `last:N` names the N newest good runs of the same job.

    Good is a finished run without the tag `bad` that ran before those it is compared with.
    UserError where `against` is of several jobs, or has no earlier run.
    """
    if not text.startswith(LAST):
        return resolve_runs(db, text)
    number = text.removeprefix(LAST)
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= MAX_LAST):
        raise UserError(f"base {text!r}: is not {LAST}N with N of 1 to {MAX_LAST}")
    if not against:
        raise UserError(f"base {text!r}: choose the other side first")
    jobs = {(job.key, job.gpu_model): job for job in (job_of(db, run) for run in against)}
    if len(jobs) > 1:
        raise UserError(f"base {text!r}: the other side holds runs of {len(jobs)} jobs; give one")
    runs = past_runs(db, next(iter(jobs.values())))
    places = [i for i, run in enumerate(runs) if run.run_id in against]
    earlier = runs[: min(places)] if places else runs
    good = [run.run_id for run in earlier if BAD_TAG not in run.tags]
    if not good:
        raise UserError(
            f"base {text!r}: no finished run of this job before it (runs tagged {BAD_TAG} are left"
            " out); measure it again, or name the base"
        )
    return good[-int(number) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A comparison begun as one sweep of two jobs that ran alternately."""

    name: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    "Finished runs of each job."
    num_waiting: int


def begun_comparisons(db: Database, *, limit: int = 4) -> list[Begun]:
    """Return the newest sweeps of exactly two jobs on the same GPU model, one finished run each."""
    sweeps = db.execute(
        "SELECT r.sweep_id, coalesce(s.name, '') FROM runs r JOIN sweeps s ON s.id = r.sweep_id"
        " WHERE r.comparable_hash IS NOT NULL GROUP BY r.sweep_id"
        " HAVING count(DISTINCT r.comparable_hash) = 2 AND count(DISTINCT r.gpu_model) = 1"
        " AND count(DISTINCT CASE WHEN r.status = 'done' THEN r.comparable_hash END) = 2"
        " ORDER BY max(r.created_at) DESC LIMIT ?",
        [limit],
    ).fetchall()
    return [_begun(db, sweep_id, name) for sweep_id, name in sweeps]


def _begun(db: Database, sweep_id: str, name: str) -> Begun:
    rows = db.execute(
        "SELECT id, comparable_hash, status FROM runs WHERE sweep_id = ?"
        " ORDER BY created_at, rowid",
        [sweep_id],
    ).fetchall()
    sides: dict[str, list[str]] = {}
    for run_id, job, status in rows:
        sides.setdefault(job, []).extend([run_id] if status == "done" else [])
    a, b = sides.values()
    waiting = ("queued", "claimed", "running", "ingesting")
    return Begun(
        name=name,
        a=tuple(a),
        b=tuple(b),
        num_waiting=sum(status in waiting for *_, status in rows),
    )


JobKey = tuple[str, str]
"""comparable_hash and gpu_model: what makes two runs the same measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Two sides of a comparison, oldest run first, with what ran in turn added."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    num_added: int
    num_waiting: int
    "Repeats that have not ended yet."


def find_repeats(db: Database, a: Sequence[str], b: Sequence[str]) -> Repeats:
    """Return both sides with the runs of their jobs in sweeps that hold both jobs. Read-only.

    Nothing is added to a side of several jobs, or of files, whose jobs were not run here.
    """
    job_a, job_b = _job_key(db, a), _job_key(db, b)
    if job_a is None or job_b is None or job_a == job_b:
        return Repeats(a=tuple(a), b=tuple(b), num_added=0, num_waiting=0)
    added_a, waiting_a = _in_turn(db, job_a, job_b, a)
    added_b, waiting_b = _in_turn(db, job_b, job_a, b)
    return Repeats(
        a=(*a, *added_a),
        b=(*b, *added_b),
        num_added=len(added_a) + len(added_b),
        num_waiting=waiting_a + waiting_b,
    )


def _job_key(db: Database, run_ids: Sequence[str]) -> JobKey | None:
    """Return the one job of these runs; None for several, or for a run that was not submitted."""
    marks = ",".join("?" * len(run_ids))
    rows = db.execute(
        f"SELECT DISTINCT comparable_hash, gpu_model, source FROM runs WHERE id IN ({marks})",
        list(run_ids),
    ).fetchall()
    if len(rows) != 1 or rows[0][2] != "submitted" or None in rows[0]:
        return None
    return rows[0][0], rows[0][1]


def _in_turn(
    db: Database, job: JobKey, other: JobKey, known: Sequence[str]
) -> tuple[list[str], int]:
    """Return the finished runs of `job` beside runs of `other`, and how many have not ended."""
    rows = db.execute(
        "SELECT id, status FROM runs WHERE comparable_hash = ? AND gpu_model = ? AND sweep_id IN"
        " (SELECT sweep_id FROM runs WHERE comparable_hash = ? AND gpu_model = ?)"
        " ORDER BY created_at, rowid",
        [*job, *other],
    ).fetchall()
    done = [run_id for run_id, status in rows if status == "done" and run_id not in known]
    waiting = ("queued", "claimed", "running", "ingesting")
    return done, sum(status in waiting for _, status in rows)

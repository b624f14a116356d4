"""Current state: the queue, the log of a run, workers, GPUs, baselines. Read-only."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlite_utils import Database

from core.queues import job_queue
from db.clock import seconds_ago
from db.devices import ONLINE_S, device_name, devices, queues_online

if TYPE_CHECKING:
    import pandas as pd

QUEUE_COLUMNS = (
    "id",
    "name",
    "status",
    "workload",
    "params",
    "gpu_model",
    "profilers",
    "worker_id",
    "progress",
    "cancel_requested",
    "created_at",
    "started_at",
    "attempt",
    "sweep_id",
    "device_id",
    "has_worker",
    "device_name",
)
EVENT_COLUMNS = ("id", "at", "kind", "message")
WORKER_COLUMNS = ("id", "version", "queues", "info", "started_at", "seen_at", "stopped_at")
GPU_COLUMNS = (
    "id",
    "worker_id",
    "model",
    "uuid",
    "ordinal",
    "compute_capability",
    "num_sms",
    "memory_bytes",
    "driver",
    "info",
    "noise_floor_frac",
    "probed_at",
)


def _select(
    db: Database, sql: str, params: Sequence[Any], columns: Sequence[str]
) -> "pd.DataFrame":
    """Return rows as a frame; pandas is imported where there is one."""
    from db.frames import select

    return select(db, sql, params, columns)


def queue(db: Database) -> "pd.DataFrame":
    """Return the runs at work, then the waiting ones in order (QUEUE_COLUMNS).

    `has_worker`: a worker that is online serves the run's GPU model, or the physical GPU that it
    names; else it waits for one. `device_name`: that GPU as `MODEL@HOST:INDEX`, or None.
    """
    columns = ", ".join(QUEUE_COLUMNS[:-2])
    frame = _select(
        db,
        f"SELECT {columns}, 0, NULL FROM runs"
        " WHERE status IN ('queued', 'claimed', 'running', 'ingesting')"
        " ORDER BY status = 'queued', position, id",
        (),
        QUEUE_COLUMNS,
    )
    for column in ("params", "progress"):
        frame[column] = frame[column].map(json.loads)
    frame["profilers"] = frame["profilers"].map(lambda text: tuple(json.loads(text)))
    import pandas as pd

    online, known = queues_online(db), devices(db)
    places = list(zip(frame["gpu_model"], frame["device_id"], strict=True))
    frame["has_worker"] = [job_queue(model, device) in online for model, device in places]
    names = [device_name(known, key) if key else None for key in frame["device_id"]]
    frame["device_name"] = pd.Series(names, dtype="object")
    return frame


def has_capture(db: Database, run_id: str, source_sha256: str) -> bool:
    """Say whether a run has stored the capture that was uploaded under this hash."""
    row = db.execute(
        "SELECT 1 FROM captures WHERE run_id = ? AND source_sha256 = ?", [run_id, source_sha256]
    ).fetchone()
    return row is not None


def source_hashes(db: Database, run_id: str) -> dict[str, str]:
    """Return file name -> SHA-256 before private fields were removed, of a run's captures."""
    rows = db.execute("SELECT file_name, source_sha256 FROM captures WHERE run_id = ?", [run_id])
    return dict(rows.fetchall())


def events(db: Database, run_id: str, after_id: int = 0, limit: int = 500) -> "pd.DataFrame":
    """Return the log lines after `after_id`, oldest first (EVENT_COLUMNS)."""
    return _select(
        db,
        "SELECT id, at, kind, message FROM events WHERE run_id = ? AND id > ? ORDER BY id LIMIT ?",
        (run_id, after_id, limit),
        EVENT_COLUMNS,
    )


def last_events(db: Database, run_id: str, limit: int = 200) -> "pd.DataFrame":
    """Return the newest log lines, oldest first (EVENT_COLUMNS)."""
    return _select(
        db,
        "SELECT * FROM (SELECT id, at, kind, message FROM events WHERE run_id = ?"
        " ORDER BY id DESC LIMIT ?) ORDER BY id",
        (run_id, limit),
        EVENT_COLUMNS,
    )


def workers(db: Database) -> "pd.DataFrame":
    """Return WORKER_COLUMNS + is_online, the newest first; `queues` a tuple, `info` a dict."""
    frame = _select(
        db,
        f"SELECT {', '.join(WORKER_COLUMNS)} FROM workers ORDER BY seen_at DESC",
        (),
        WORKER_COLUMNS,
    )
    frame["queues"] = frame["queues"].map(lambda text: tuple(json.loads(text)))
    frame["info"] = frame["info"].map(json.loads)
    frame["is_online"] = frame["stopped_at"].isna() & (frame["seen_at"] >= seconds_ago(ONLINE_S))
    return frame


def worker_info(db: Database, gpu_model: str, device: str | None = None) -> dict[str, Any]:
    """Return what the newest worker with this GPU reported about its host; {} without one."""
    row = db.execute(
        "SELECT w.info FROM workers w JOIN gpus g ON g.worker_id = w.id"
        " WHERE g.model = ? AND g.id = coalesce(?, g.id) ORDER BY w.seen_at DESC LIMIT 1",
        [gpu_model, device],
    ).fetchone()
    return dict(json.loads(row[0])) if row else {}


def gpus(db: Database) -> "pd.DataFrame":
    """Return GPU_COLUMNS + is_online, num_runs, num_own_runs, host, peaks.

    num_runs: of its model, num_own_runs: of this very GPU. peaks: a dict of those measured, or {}.
    """
    frame = _select(
        db, f"SELECT {', '.join(GPU_COLUMNS)} FROM gpus ORDER BY model, id", (), GPU_COLUMNS
    )
    online = set(workers(db).query("is_online")["id"])
    counts = dict(db.execute("SELECT gpu_model, count(*) FROM runs GROUP BY gpu_model").fetchall())
    own = dict(db.execute("SELECT gpu_id, count(*) FROM runs GROUP BY gpu_id").fetchall())
    hosts = dict(db.execute("SELECT id, info ->> '$.host_label' FROM workers").fetchall())
    frame["info"] = frame["info"].map(json.loads)
    frame["is_online"] = frame["worker_id"].isin(online)
    frame["num_runs"] = [counts.get(model, 0) for model in frame["model"]]
    frame["num_own_runs"] = [own.get(key, 0) for key in frame["id"]]
    frame["host"] = [hosts.get(worker) for worker in frame["worker_id"]]
    frame["peaks"] = [gpu_peaks(db, key) for key in frame["id"]]
    return frame


def gpu_peaks(db: Database, gpu_id: str | None) -> dict[str, float]:
    """Return one GPU's measured peaks by name; {} when it was not measured."""
    return dict(
        db.execute("SELECT name, value FROM gpu_peaks WHERE gpu_id = ?", [gpu_id]).fetchall()
    )


def newest_against_baselines(db: Database) -> "pd.DataFrame":
    """Return, for each baseline, the newest other finished run of the same measurement.

    Columns: baseline_id, run_id, workload, gpu_model.
    """
    columns = ("baseline_id", "run_id", "workload", "gpu_model")
    return _select(
        db,
        "SELECT b.run_id, r.id, r.workload, r.gpu_model FROM baselines b JOIN runs r ON r.id ="
        " (SELECT id FROM runs n WHERE n.comparable_hash = b.comparable_hash"
        " AND n.gpu_model = b.gpu_model AND n.id <> b.run_id AND n.status = 'done'"
        " ORDER BY n.created_at DESC LIMIT 1)",
        (),
        columns,
    )


def measured_on_both(db: Database, source_gpu: str | None) -> list[tuple[str, str, str]]:
    """Return (run on the source GPU, other GPU model, run on it) of jobs with a latency on both.

    The newest run of each; at most 500 jobs, the newest first.
    """
    newest = (
        "SELECT id FROM runs n WHERE n.comparable_hash = {0}.comparable_hash AND n.status = 'done'"
        " AND n.gpu_model = {0}.gpu_model AND n.latency_ms > 0 ORDER BY n.created_at DESC LIMIT 1"
    )
    rows = db.execute(
        "SELECT a.id, b.gpu_model, b.id FROM runs a"
        " JOIN runs b ON b.comparable_hash = a.comparable_hash AND b.gpu_model <> a.gpu_model"
        f" WHERE a.gpu_model = ? AND a.id = ({newest.format('a')})"
        f" AND b.id = ({newest.format('b')}) ORDER BY a.created_at DESC LIMIT 500",
        [source_gpu],
    )
    return [(source, model, target) for source, model, target in rows.fetchall()]


def integrity(db: Database) -> list[str]:
    """Return what SQLite finds wrong with the file; [] when it is sound."""
    findings = [row[0] for row in db.execute("PRAGMA quick_check(5)")]
    broken = db.execute("PRAGMA foreign_key_check").fetchall()
    faults = [text for text in findings if text != "ok"]
    return faults + ([f"{len(broken)} rows point nowhere"] if broken else [])

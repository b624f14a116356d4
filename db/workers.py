"""Workers and their GPUs: registration, heartbeat, measured peaks, removal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlite_utils import Database

from core.errors import UserError
from core.foreign import MAX_GPU_CHARS
from db.clock import seconds_ago, utc_now
from db.devices import ONLINE_S
from db.tokens import EMBEDDED, bind_worker

MAX_GPUS_OF_WORKER = 512
"""Of which it can register 128 at once: GPUs are exchanged, and get other partitions."""
MAX_PEAKS = 200
"""Kinds of peaks of one GPU."""
GPU_FIELDS = ("model", "uuid", "ordinal", "compute_capability", "num_sms", "memory_bytes", "driver")


def register_worker(
    db: Database,
    worker_id: str,
    *,
    version: str,
    queues: Sequence[str],
    gpus: Sequence[Mapping[str, Any]],
    info: Mapping[str, Any],
    token_label: str = EMBEDDED,
) -> None:
    """Store a worker and its GPUs with their whole probe result; replaces what it said before.

    NotYours when the worker, or one of the GPUs, belongs to another token: nothing is stored then.
    """
    now = utc_now()
    keys = [gpu_id(worker_id, gpu, ordinal) for ordinal, gpu in enumerate(gpus)]
    values = json.dumps(list(queues)), json.dumps(dict(info) | {"token": token_label})
    with db.atomic():
        bind_worker(db, token_label, worker_id, keys)
        db.conn.execute(
            "INSERT INTO workers (id, version, queues, info, started_at, seen_at, token_label)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
            " version = excluded.version, queues = excluded.queues, info = excluded.info,"
            " started_at = excluded.started_at, seen_at = excluded.seen_at, stopped_at = NULL,"
            " token_label = excluded.token_label",
            (worker_id, version, *values, now, now, token_label),
        )
        for ordinal, (key, gpu) in enumerate(zip(keys, gpus, strict=True)):
            store_gpu(db, key, worker_id, {"ordinal": ordinal, **gpu})
        sql = "SELECT count(*) FROM gpus WHERE worker_id = ?"
        if db.execute(sql, [worker_id]).fetchone()[0] > MAX_GPUS_OF_WORKER:
            raise UserError(
                f"worker {worker_id!r} has had more than {MAX_GPUS_OF_WORKER} GPUs:"
                " forget some with `warpboard gpu remove ID`"
            )


def gpu_id(worker_id: str, gpu: Mapping[str, Any], ordinal: int) -> str:
    """Name a physical GPU: its own uuid where it has one, else worker and ordinal."""
    return str(gpu.get("uuid") or f"{worker_id}/{gpu.get('ordinal', ordinal)}")


def store_gpu(db: Database, key: str, worker_id: str | None, gpu: Mapping[str, Any]) -> None:
    """Insert or update one GPU with `gpu["peaks"]` (name -> value, or value and unit).

    Missing facts keep their stored value: a bundle that knows less erases nothing. A worker (with
    `worker_id`) tells how its GPU is now; files tell how it was, and only fill in what is missing.
    Measured figures give way to those measured later.
    """
    fields = {field: gpu.get(field) for field in GPU_FIELDS}
    fields["model"] = fields["model"] or gpu.get("name") or "unknown GPU"
    skipped = (*GPU_FIELDS, "peaks", *_MEASURED)
    info = {k: v for k, v in gpu.items() if k not in skipped and v is not None}
    with db.atomic():
        row = db.execute(
            f"SELECT {', '.join(GPU_FIELDS)}, info FROM gpus WHERE id = ?", [key]
        ).fetchone()
        if row is not None:
            known, known_info = dict(zip(GPU_FIELDS, row, strict=False)), json.loads(row[-1])
            older, newer = (known, fields) if worker_id else (fields, known)
            fields = {field: _first(newer[field], older[field]) for field in GPU_FIELDS}
            merged = known_info | info if worker_id else info | known_info
            info = merged if len(json.dumps(merged)) <= MAX_GPU_CHARS else info
        values = (key, worker_id, *fields.values(), json.dumps(info), utc_now())
        columns = ("id", "worker_id", *GPU_FIELDS, "info", "probed_at")
        updates = ", ".join(
            f"{c} = coalesce(excluded.{c}, {c})" for c in columns if c not in ("id", "probed_at")
        )
        probed = ", probed_at = excluded.probed_at" if worker_id else ""
        db.conn.execute(
            f"INSERT INTO gpus ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            f" ON CONFLICT (id) DO UPDATE SET {updates}{probed}",
            values,
        )
        _store_floors(db, key, gpu)
        store_peaks(db, key, gpu.get("peaks") or {}, measured_at=gpu.get("measured_at"))


def _first(value: Any, other: Any) -> Any:
    return other if value is None else value


_MEASURED = ("noise_floor_frac", "noise_floors", "measured_at")
"""What `worker.measure` finds besides peaks: kept with its date, replaced by later figures."""


def _store_floors(db: Database, key: str, gpu: Mapping[str, Any]) -> None:
    """Store noise floors with their date; earlier ones than those stored change nothing."""
    frac, floors = gpu.get("noise_floor_frac"), gpu.get("noise_floors")
    if frac is None and not floors:
        return
    at = _not_later(gpu.get("measured_at") or "")
    known = db.execute(
        "SELECT coalesce(json_extract(info, '$.measured_at'), ''), noise_floor_frac FROM gpus"
        " WHERE id = ?",
        [key],
    ).fetchone()
    if known[1] is not None and at < known[0]:
        return
    db.conn.execute(
        "UPDATE gpus SET noise_floor_frac = coalesce(?, noise_floor_frac), info = json_patch(info,"
        " json(?)) WHERE id = ?",
        (frac, json.dumps({"measured_at": at} | ({"noise_floors": floors} if floors else {})), key),
    )


def remove_gpu(db: Database, key: str) -> None:
    """Forget a GPU and what was measured of it; its runs stay.

    A worker that is offline and has no other GPU goes too. UserError while a worker that is online
    has the GPU (it would come back), or while a run waits for it.
    """
    with db.atomic():
        row = db.execute("SELECT worker_id FROM gpus WHERE id = ?", [key]).fetchone()
        if row is None:
            raise UserError(f"gpu: {key!r} is no GPU's id; `warpboard gpu list` shows them")
        online = "SELECT 1 FROM workers WHERE id = ? AND stopped_at IS NULL AND seen_at >= ?"
        if db.execute(online, [row[0], seconds_ago(ONLINE_S)]).fetchone():
            raise UserError(f"gpu {key}: the worker {row[0]} is online and has it; stop it first")
        waits = "SELECT id FROM runs WHERE device_id = ? AND status = 'queued'"
        if waiting := db.execute(waits, [key]).fetchone():
            raise UserError(f"gpu {key}: run {waiting[0]} waits for it; cancel that first")
        db.conn.execute("DELETE FROM gpus WHERE id = ?", (key,))
        db.conn.execute(
            "DELETE FROM workers WHERE id = ? AND NOT EXISTS (SELECT 1 FROM gpus g"
            " WHERE g.worker_id = workers.id) AND NOT EXISTS (SELECT 1 FROM runs r"
            " WHERE r.worker_id = workers.id AND r.status IN ('claimed', 'running'))",
            (row[0],),
        )


def gpu_records(db: Database) -> list[dict[str, Any]]:
    """Return id, model and worker of every known GPU."""
    rows = db.execute("SELECT id, model, worker_id FROM gpus ORDER BY model, id")
    return [{"id": key, "model": model, "worker_id": worker} for key, model, worker in rows]


def gpu_model_of(db: Database, worker_id: str, key: str) -> str | None:
    """Return the model of a GPU that this worker registered; None if it registered no such GPU."""
    row = db.execute(
        "SELECT model FROM gpus WHERE id = ? AND worker_id = ?", [key, worker_id]
    ).fetchone()
    return row[0] if row else None


def store_peaks(
    db: Database, key: str, peaks: Mapping[str, Any], *, measured_at: str | None = None
) -> None:
    """Store measured peaks of one GPU with their dates; what was measured earlier changes nothing.

    A value that is not a positive number is left out. `measured_at` dates those without a date.
    """
    rows = []
    for name, entry in peaks.items():
        record = entry if isinstance(entry, Mapping) else {"value": entry}
        value = record.get("value")
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            unit = record.get("unit") or peak_unit(name)
            at = _not_later(record.get("measured_at") or measured_at or utc_now())
            clock_mhz = record.get("sm_clock_mhz")
            clock_mhz = None if clock_mhz is None else round(clock_mhz)
            rows.append((key, name, float(value), unit, at, clock_mhz))
    known = {r[0] for r in db.execute("SELECT name FROM gpu_peaks WHERE gpu_id = ?", [key])}
    if len(known.union(row[1] for row in rows)) > MAX_PEAKS:
        raise UserError(f"gpu {key}: it has more than {MAX_PEAKS} peaks")
    db.conn.executemany(
        "INSERT INTO gpu_peaks VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (gpu_id, name) DO UPDATE SET"
        " value = excluded.value, unit = excluded.unit, measured_at = excluded.measured_at,"
        " sm_clock_mhz = excluded.sm_clock_mhz WHERE excluded.measured_at >= measured_at",
        rows,
    )


def _not_later(measured_at: str) -> str:
    """Return a time of measurement, at the latest now: a wrong clock's would stay for ever."""
    return min(measured_at, utc_now())


def unnamed_gpus(db: Database, model: str, worker_ids: Sequence[str]) -> list[str]:
    """Return the keys of these workers' devices of a model that have no UUID, such as a CPU."""
    marks = ", ".join("?" * len(worker_ids))
    rows = db.execute(
        f"SELECT id FROM gpus WHERE uuid IS NULL AND model = ? AND worker_id IN ({marks})",
        (model, *worker_ids),
    )
    return [row[0] for row in rows]


def store_measurement(db: Database, key: str, gpu: Mapping[str, Any]) -> None:
    """Store what `worker.measure` measured on one GPU; what its worker reported is kept."""
    with db.atomic():
        if not db.execute("SELECT 1 FROM gpus WHERE id = ?", [key]).fetchone():
            store_gpu(db, key, None, gpu)
            return
        _store_floors(db, key, gpu)
        store_peaks(db, key, gpu.get("peaks") or {}, measured_at=gpu.get("measured_at"))


def peak_unit(name: str) -> str:
    """Return the unit that a peak's name ends with."""
    endings = {"_bytes_per_s": "B/s", "_flops_per_s": "FLOP/s", "_ns": "ns", "_s": "s"}
    return next((unit for end, unit in endings.items() if name.endswith(end)), "")


def heartbeat(db: Database, worker_id: str, running: Sequence[str]) -> list[str]:
    """Record a worker's heartbeat and return those of its `running` runs that it should stop.

    UserError for a worker that has not registered (the database was replaced): it registers again.
    """
    with db.atomic():
        seen = db.conn.execute(
            "UPDATE workers SET seen_at = ?, stopped_at = NULL WHERE id = ?", (utc_now(), worker_id)
        ).rowcount
        if not seen:
            raise UserError(f"worker {worker_id!r} is not registered")
        marks = ", ".join("?" * len(running))
        rows = db.execute(
            f"SELECT id FROM runs WHERE id IN ({marks}) AND (cancel_requested = 1"
            " OR status NOT IN ('claimed', 'running', 'interrupted') OR worker_id <> ?)",
            (*running, worker_id),
        )
        return [row[0] for row in rows]


def worker_stopped(db: Database, worker_id: str) -> None:
    """Record that a worker has ended."""
    db.conn.execute("UPDATE workers SET stopped_at = ? WHERE id = ?", (utc_now(), worker_id))
    db.conn.commit()


def workers_with_active_runs(db: Database) -> list[tuple[str, bool]]:
    """Return the workers that have claimed runs, and whether each is on this host."""
    rows = db.execute(
        "SELECT DISTINCT r.worker_id, coalesce(json_extract(w.info, '$.is_embedded'), 0)"
        " FROM runs r LEFT JOIN workers w ON w.id = r.worker_id"
        " WHERE r.status IN ('claimed', 'running') AND r.worker_id IS NOT NULL"
    ).fetchall()
    return [(worker_id, bool(is_embedded)) for worker_id, is_embedded in rows]

"""Physical GPUs as workers registered them, and how people name one: `MODEL@HOST:INDEX`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from core.errors import UserError
from core.gpus import fits_gpu
from core.queues import job_queue
from db.clock import seconds_ago

ONLINE_S = 45.0
"A worker that has been silent this long is shown as offline."
_MIN_ID_CHARS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, or the CPU of one worker."""

    id: str
    "Its UUID, else its worker's id and its index."
    model: str
    host: str
    index: int
    is_online: bool

    @property
    def name(self) -> str:
        """Return what the user writes: `NVIDIA H100 80GB HBM3@node1:0`."""
        return f"{self.model}@{self.host}:{self.index}"


def devices(db: Database) -> list[Device]:
    """Return the devices that a worker registered, by model, host and index."""
    rows = db.execute(
        "SELECT g.id, g.model, w.info, coalesce(g.ordinal, 0),"
        " w.stopped_at IS NULL AND w.seen_at >= ?"
        " FROM gpus g JOIN workers w ON w.id = g.worker_id",
        [seconds_ago(ONLINE_S)],
    )
    known = [
        Device(
            id=key,
            model=model,
            host=str(json.loads(info).get("host_label") or "unknown"),
            index=index,
            is_online=bool(is_online),
        )
        for key, model, info, index, is_online in rows
    ]
    return sorted(known, key=lambda d: (d.model, d.host, d.index, d.id))


def online_workers(db: Database) -> list[tuple[str, str, dict[str, Any]]]:
    """Return `(id, version, info)` of the workers that are online; `info` is what each said."""
    rows = db.execute(
        "SELECT id, version, info FROM workers WHERE stopped_at IS NULL AND seen_at >= ?"
        " ORDER BY id",
        [seconds_ago(ONLINE_S)],
    )
    return [(key, version, dict(json.loads(info))) for key, version, info in rows]


def queues_online(db: Database) -> set[str]:
    """Return the Celery queues that a worker which is online serves."""
    rows = db.execute(
        "SELECT queues FROM workers WHERE stopped_at IS NULL AND seen_at >= ?",
        [seconds_ago(ONLINE_S)],
    )
    return {queue for row in rows for queue in json.loads(row[0])}


def nobody_serves(db: Database, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return run id -> GPU, for those of `db.runs.list_rows` that wait without a worker."""
    online, known = queues_online(db), devices(db)
    return {
        row["id"]: device_name(known, row["device_id"]) if row.get("device_id") else model
        for row in rows
        if row["status"] == "queued"
        and (model := row.get("gpu_model")) is not None
        and job_queue(model, row.get("device_id")) not in online
    }


def device_name(known: Sequence[Device], key: str) -> str:
    """Return a device's name, or its id where no worker has it any more."""
    return next((d.name for d in known if d.id == key), key)


def resolve_device(known: Sequence[Device], text: str) -> Device:
    """Return the device that a text names; UserError, with the list, when none or several do.

    `MODEL@HOST:INDEX` (part of the model's name, or none; the index may be left out where the host
    has one that fits), a UUID, or the beginning of one.
    """
    exact = [d for d in known if text in (d.id, d.name)]
    if len(exact) == 1:
        return exact[0]
    meant = exact or [d for d in known if _is_meant(d, text)]
    # A data folder made anew leaves its host's CPU registered twice, once as offline.
    online = [d for d in meant if d.is_online]
    if len(meant) == 1 or len(online) == 1:
        return (online or meant)[0]
    if not meant:
        listed = ", ".join(d.name for d in known) or "none; start a worker first"
        raise UserError(f"gpu: no worker registered {text!r}; there are {listed}")
    listed = ", ".join(f"{d.name} ({d.id})" for d in meant)
    raise UserError(f"gpu: {text!r} fits several: {listed}; write more of the name, or the id")


def names_device(known: Sequence[Device], text: str) -> bool:
    """Say whether a text means one physical GPU rather than a model."""
    is_uuid = text.upper().startswith(("GPU-", "MIG-"))
    has_id = len(text) >= _MIN_ID_CHARS and any(_has_id(d, text) for d in known)
    return "@" in text or is_uuid or has_id


def _has_id(device: Device, text: str) -> bool:
    return device.id.lower().startswith(text.lower())


def _is_meant(device: Device, text: str) -> bool:
    model, mark, place = text.partition("@")
    if not mark:
        return _has_id(device, text)
    host, mark, index = place.rpartition(":")
    if not mark:
        host, index = place, ""
    is_model = not model or fits_gpu(model, device.model)
    is_place = host.lower() == device.host.lower() and index in ("", str(device.index))
    return is_model and is_place


def peaks_of_all(db: Database) -> dict[str, dict[str, float]]:
    """Return the measured peaks of every GPU: id -> name -> value."""
    peaks: dict[str, dict[str, float]] = {}
    for gpu_id, name, value in db.execute("SELECT gpu_id, name, value FROM gpu_peaks").fetchall():
        peaks.setdefault(gpu_id, {})[name] = value
    return peaks

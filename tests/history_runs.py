"""Histories in a database: one job measured night after night."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlite_utils import Database

from core.spec import JobSpec
from db.runs import insert_run

FIRST_NIGHT = datetime(2026, 9, 1, 2, 0, tzinfo=UTC)
GPU = "NVIDIA H100 80GB HBM3"


def night(index: int) -> str:
    """Return when a night's run began."""
    return (FIRST_NIGHT + timedelta(days=index)).isoformat().replace("+00:00", "Z")


def store_nights(
    db: Database,
    latencies_ms: Sequence[float],
    *,
    params: Mapping[str, Any] | None = None,
    environments: Sequence[Mapping[str, str]] = (),
    noise_floor_frac: float | None = 0.024,
    first: int = 0,
    name: str = "nightly",
    summaries: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """Store a finished run a night with five processes of four samples each; return their ids."""
    ids = []
    for i, latency_ms in enumerate(latencies_ms):
        spec = JobSpec(workload="decode", params=dict(params or {"compile": "none"}), gpu=GPU)
        run_id = insert_run(db, spec=spec, name=f"{name} {first + i}")
        summary = {"latency_ms": {"median": latency_ms, "n": 20}, "idle_frac": 0.02}
        summary |= {"idle_source": "clean", "profiled_idle_frac": 0.02}
        summary |= dict(summaries[i]) if summaries else {}
        info = {"noise_floor_frac": noise_floor_frac, "noise_floors": {}}
        db.conn.execute(
            "UPDATE runs SET status = 'done', latency_ms = ?, summary = ?, info = ?,"
            " started_at = ?, finished_at = ?, created_at = ?, kernel_time_ns = ?,"
            " peak_memory_bytes = ? WHERE id = ?",
            (
                latency_ms,
                json.dumps(summary),
                json.dumps(info),
                night(first + i),
                night(first + i)[:-4] + "9:00Z",
                night(first + i),
                summary.get("kernel_time_ns"),
                summary.get("peak_memory_bytes"),
                run_id,
            ),
        )
        db.conn.executemany(
            "INSERT INTO samples VALUES (?, 'clean', ?, ?, ?)",
            [
                (run_id, process, k, round(latency_ms * 1e6 * (1 + 0.001 * (k - 1.5 + process))))
                for process in range(5)
                for k in range(4)
            ],
        )
        environment = environments[i] if environments else {}
        db.conn.executemany(
            "INSERT INTO environments VALUES (?, ?, ?)",
            [(run_id, key, value) for key, value in environment.items()],
        )
        ids.append(run_id)
    db.conn.commit()
    return ids

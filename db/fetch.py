"""Read runs with their measurements back. Read-only; merging of several captures is by sum."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sqlite_utils import Database

from analysis import tables
from analysis.runview import CLASSIFIED_KERNEL_COLUMNS, RunRow, RunView, StepView
from analysis.tables import CaptureWarning
from core.config import DataDir
from core.errors import UserError
from core.gpus import is_one_gpu
from core.states import KERNEL_PASS_ORDER
from db.frames import build, select_parts

CAPTURE_COLUMNS = (
    "id",
    "pass",
    "process",
    "kind",
    "tool",
    "tool_version",
    "file_name",
    "bytes",
    "sha256",
    "spans_path",
    "num_spans",
    "private_removed",
)
METRIC_COLUMNS = ("pass", "phase", "name", "value", "unit", "better", "process_values")

_CLASSES = "n.category, n.origin, n.confidence, n.rule"
_COUNTERS = ", ".join(
    "n.short_name" if c == "short_name" else f"c.{c}" for c in tables.COUNTER_COLUMNS
)
_PROFILED_COLUMNS = (*tables.SAMPLE_COLUMNS, "pass")
_WANTED = (
    "WITH wanted(run, run_id, primary_pass) AS"
    " (SELECT key, json_extract(value, '$[0]'), json_extract(value, '$[1]')"
    " FROM json_each(:wanted)) "
)
"""The runs that are read, as a JSON list of [run id, primary pass]; `run` is the place in it."""


def _rows(table: str, columns: Sequence[str], order: str, where: str = "") -> str:
    names = ", ".join(f't."{c}"' for c in columns)
    return (
        f"SELECT w.run, {names} FROM wanted w CROSS JOIN {table} t ON t.run_id = w.run_id {where}"
        f" ORDER BY w.run, {order}"
    )


_OF_PRIMARY = "AND t.pass = w.primary_pass"
_FRAMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "kernels": (
        "SELECT w.run, k.name, n.short_name, k.grid, k.block, k.registers, k.shared_bytes,"
        " sum(k.count), sum(k.total_ns), min(k.min_ns), max(k.max_ns), max(k.is_opaque),"
        f" {_CLASSES} FROM wanted w"
        " CROSS JOIN kernels k ON k.run_id = w.run_id AND k.pass = w.primary_pass"
        " JOIN kernel_names n ON n.name = k.name"
        " GROUP BY w.run, k.name, k.grid, k.block, k.registers, k.shared_bytes, k.is_opaque"
        " ORDER BY w.run, sum(k.total_ns) DESC, k.name",
        tables.KERNEL_COLUMNS + CLASSIFIED_KERNEL_COLUMNS,
    ),
    "phases": (
        _rows("phases", tables.PHASE_COLUMNS, "process, first_start_ns, path", _OF_PRIMARY),
        tables.PHASE_COLUMNS,
    ),
    "api_calls": (
        "SELECT w.run, name, sum(count), sum(total_ns), min(min_ns), max(max_ns),"
        " sum(num_failed), max(is_sync) FROM wanted w"
        f" CROSS JOIN api_calls t ON t.run_id = w.run_id {_OF_PRIMARY}"
        " GROUP BY w.run, name ORDER BY w.run, sum(total_ns) DESC, name",
        tables.API_CALL_COLUMNS,
    ),
    "transfers": (
        "SELECT w.run, kind, src, dst, sum(count), sum(bytes), sum(total_ns) FROM wanted w"
        f" CROSS JOIN transfers t ON t.run_id = w.run_id {_OF_PRIMARY}"
        " GROUP BY w.run, kind, src, dst ORDER BY w.run, sum(total_ns) DESC, kind",
        tables.TRANSFER_COLUMNS,
    ),
    "gaps": (
        "SELECT w.run, cause, sum(count), sum(total_ns), group_concat(DISTINCT evidence)"
        f" FROM wanted w CROSS JOIN gaps t ON t.run_id = w.run_id {_OF_PRIMARY}"
        " GROUP BY w.run, cause ORDER BY w.run, sum(total_ns) DESC",
        tables.GAP_COLUMNS,
    ),
    "samples": (
        _rows("samples", tables.SAMPLE_COLUMNS, "process, iteration", "AND t.pass = 'clean'"),
        tables.SAMPLE_COLUMNS,
    ),
    "profiled_samples": (
        _rows("samples", _PROFILED_COLUMNS, "pass, process, iteration", "AND t.pass <> 'clean'"),
        _PROFILED_COLUMNS,
    ),
    "memory_points": (
        _rows(
            "memory_points",
            tables.MEMORY_POINT_COLUMNS,
            "capture_id, device, t.rowid",
            "AND t.pass = (SELECT pass FROM memory_points WHERE run_id = w.run_id"
            " ORDER BY CASE pass WHEN 'memory' THEN 0 WHEN 'nsys' THEN 1 ELSE 2 END LIMIT 1)",
        ),
        tables.MEMORY_POINT_COLUMNS,
    ),
    "memory_at_peak": (
        _rows("memory_at_peak", tables.MEMORY_AT_PEAK_COLUMNS, "bytes DESC, site"),
        tables.MEMORY_AT_PEAK_COLUMNS,
    ),
    "counters": (
        f"SELECT w.run, {_COUNTERS}, n.category, n.origin FROM wanted w"
        " CROSS JOIN counters c ON c.run_id = w.run_id JOIN kernel_names n ON n.name = c.name"
        " ORDER BY w.run, c.launch",
        (*tables.COUNTER_COLUMNS, "category", "origin"),
    ),
    "rules": (_rows("rules", tables.RULE_COLUMNS, "t.rowid"), tables.RULE_COLUMNS),
    "counter_details": (
        _rows("counter_details", tables.COUNTER_DETAIL_COLUMNS, "t.rowid"),
        tables.COUNTER_DETAIL_COLUMNS,
    ),
    "counter_sources": (
        _rows("counter_sources", tables.COUNTER_SOURCE_COLUMNS, "t.rowid"),
        tables.COUNTER_SOURCE_COLUMNS,
    ),
    "metrics": (_rows("metrics", METRIC_COLUMNS, "pass, phase, name"), METRIC_COLUMNS),
}
"""Each frame of a RunView: its SELECT, after _WANTED and with the run first, and its columns."""
_READ: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "captures": {"private_removed": lambda text: tuple(json.loads(text))},
    "metrics": {"process_values": lambda text: json.loads(text) if text else None},
}
NOT_IN_A_STUDY = frozenset(
    {"gaps", "profiled_samples", "memory_points", "memory_at_peak"}
    | {"rules", "counter_details", "counter_sources", "by_step"}
)
"""Frames that no study reads."""
ALL_BUT_SAMPLES = frozenset(_FRAMES) - {"samples"} | {
    "ranks",
    "by_step",
    "steps",
    "captures",
    "passes",
}
"""What a run whose numbers are known already goes without."""
NO_STEPS = StepView()
_SHORT_STEP_TABLES = ("step_kernels", "idle_host")


def run_view(db: Database, data_dir: DataDir, run_id: str) -> RunView:
    """Return what is stored about a run; UserError when it does not exist."""
    (view,) = run_views(db, data_dir, [run_id])
    return view


def run_views(
    db: Database,
    data_dir: DataDir,
    run_ids: Sequence[str],
    *,
    leave_out: frozenset[str] = frozenset(),
) -> list[RunView]:
    """Return what is stored about runs, in their order; UserError when one does not exist.

    The frames named by `leave_out` come without rows: a study reads hundreds of runs, and needs
    nothing of NOT_IN_A_STUDY (of `by_step` what a step is made of stays, without its tables, unless
    `steps` are left out too).
    """
    rows = _run_rows(db, run_ids, has_passes="passes" not in leave_out)
    stored_in = _capture_places(db, run_ids)
    primaries = [primary_pass(name for name, _ in places) for places in stored_in]
    wanted = json.dumps([[i, p or ""] for i, p in zip(run_ids, primaries, strict=True)])
    frames = {
        name: [build((), columns)] * len(run_ids)
        if name in leave_out
        else select_parts(
            db, _WANTED + sql, {"wanted": wanted}, columns, len(run_ids), read=_READ.get(name)
        )
        for name, (sql, columns) in _FRAMES.items()
    }
    frames["captures"] = (
        [build((), CAPTURE_COLUMNS)] * len(run_ids)
        if "captures" in leave_out
        else _captures(db, run_ids)
    )
    spans = [
        tuple(data_dir.spans / path for name, path in places if name == primary and path)
        for places, primary in zip(stored_in, primaries, strict=True)
    ]
    warnings, of_gpu = _warnings(db, run_ids), _GpuFacts(db)
    return [
        _view(
            db,
            stored,
            primaries[place],
            {name: parts[place] for name, parts in frames.items()},
            leave_out,
            of_gpu,
            span_paths=spans[place],
            warnings=warnings.get(stored[0].id, ()),
        )
        for place, stored in enumerate(rows)
    ]


def _view(
    db: Database,
    stored: tuple[RunRow, dict[str, Any], dict[str, Any]],
    primary: str | None,
    frames: dict[str, pd.DataFrame],
    leave_out: frozenset[str],
    of_gpu: "_GpuFacts",
    *,
    span_paths: tuple[Path, ...],
    warnings: tuple[CaptureWarning, ...],
) -> RunView:
    row, summary, info = stored
    if "num_kernels" not in summary and len(
        frames["phases"]
    ):  # a summary of ranges counts no kernels: that is not 0
        frames["phases"] = frames["phases"].assign(num_kernels=None)
    noise_floor_frac, noise_floors = of_gpu.noise_floors(row.gpu_id, info)
    return RunView(
        run=row,
        summary=summary,
        primary_pass=primary,
        memory=info.get("memory", {}),
        span_paths=span_paths,
        warnings=warnings,
        cost=info.get("cost", {}),
        peaks=of_gpu.peaks(row.gpu_id, info),
        noise_floor_frac=noise_floor_frac,
        noise_floors=noise_floors,
        ranks={} if "ranks" in leave_out else _ranks(db, row.id),
        by_step=NO_STEPS
        if "steps" in leave_out
        else step_view(db, row.id, primary, is_short="by_step" in leave_out),
        passes=tuple(info.get("passes", ())),
        **frames,
    )


def _ranks(db: Database, run_id: str) -> dict[str, Any]:
    row = db.execute("SELECT document FROM run_ranks WHERE run_id = ?", [run_id]).fetchone()
    return json.loads(row[0]) if row else {}


def run_row(db: Database, run_id: str) -> RunRow:
    """Return what the database holds about a run besides its measurements; UserError if none."""
    ((row, _, _),) = _run_rows(db, [run_id])
    return row


_RUN_COLUMNS: tuple[str, ...] = (
    *("id", "name", "source", "status", "workload", "gpu_model", "gpu_id", "repeats", "sweep_id"),
    *("created_at", "started_at", "finished_at", "worker_id", "attempt", "error", "notes"),
    "comparable_hash",
)
"""What a RunRow has as it is stored."""


def _run_rows(
    db: Database, run_ids: Sequence[str], *, has_passes: bool = True
) -> list[tuple[RunRow, dict[str, Any], dict[str, Any]]]:
    """Return each run's row, summary and info; UserError for one that does not exist.

    What a run's info says of its passes is most of it.
    """
    wanted = [json.dumps(list(run_ids))]
    among = "IN (SELECT value FROM json_each(?))"
    info = "info" if has_passes else "json_remove(info, '$.passes') AS info"
    columns = ", ".join((*_RUN_COLUMNS, "params", "profilers", "progress", "oom", "summary", info))
    sql = f"SELECT {columns} FROM runs WHERE id {among}"
    found = {row["id"]: row for row in db.query(sql, wanted)}
    missing = [run_id for run_id in run_ids if run_id not in found]
    if missing:
        raise UserError(f"run {missing[0]!r} does not exist; `runs` lists them")
    tags: dict[str, list[str]] = {}
    for run_id, tag in db.execute(
        f"SELECT run_id, tag FROM tags WHERE run_id {among} ORDER BY tag", wanted
    ):
        tags.setdefault(run_id, []).append(tag)
    environments: dict[str, dict[str, str]] = {}
    for run_id, name, value in db.execute(
        f"SELECT run_id, name, value FROM environments WHERE run_id {among} ORDER BY name", wanted
    ):
        environments.setdefault(run_id, {})[name] = value
    pinned = {run_id for (run_id,) in db.execute("SELECT run_id FROM baselines")}
    return [
        (
            RunRow(
                **{name: row[name] for name in _RUN_COLUMNS},
                params=json.loads(row["params"]),
                profilers=tuple(json.loads(row["profilers"])),
                progress=json.loads(row["progress"]),
                oom=json.loads(row["oom"]) if row["oom"] else None,
                tags=tuple(tags.get(row["id"], ())),
                is_baseline=row["id"] in pinned,
                environment=environments.get(row["id"], {}),
            ),
            json.loads(row["summary"]),
            json.loads(row["info"]),
        )
        for row in map(found.__getitem__, run_ids)
    ]


def gpu_facts(db: Database, run_id: str) -> dict[str, Any]:
    """Return what a run's own files say about its GPU; {} if nothing."""
    row = db.execute("SELECT info FROM runs WHERE id = ?", [run_id]).fetchone()
    facts = json.loads(row[0]).get("gpu") if row else None
    return {k: v for k, v in (facts or {}).items() if k not in ("model", "name")}


def captures_of(db: Database, run_id: str) -> pd.DataFrame:
    """Return CAPTURE_COLUMNS; `private_removed` is a tuple of str, `spans_path` relative."""
    (captures,) = _captures(db, [run_id])
    return captures


def _capture_places(db: Database, run_ids: Sequence[str]) -> list[list[tuple[str, str | None]]]:
    """Return the pass of each capture of each run, and where its spans are kept."""
    sql = _WANTED + _rows("captures", ("pass", "spans_path"), "t.id")
    places: list[list[tuple[str, str | None]]] = [[] for _ in run_ids]
    wanted = json.dumps([[run_id, ""] for run_id in run_ids])
    for run, name, path in db.conn.execute(sql, {"wanted": wanted}):
        places[run].append((name, path))
    return places


def _captures(db: Database, run_ids: Sequence[str]) -> list[pd.DataFrame]:
    wanted = json.dumps([[run_id, ""] for run_id in run_ids])
    sql = _WANTED + _rows("captures", CAPTURE_COLUMNS, "t.id")
    return select_parts(
        db, sql, {"wanted": wanted}, CAPTURE_COLUMNS, len(run_ids), read=_READ["captures"]
    )


def primary_pass(passes: Iterable[str]) -> str | None:
    """Return which pass kernels and phases are shown from: nsys, else trace, else None."""
    present = set(passes)
    return next((str(p) for p in KERNEL_PASS_ORDER if str(p) in present), None)


def _warnings(db: Database, run_ids: Sequence[str]) -> dict[str, tuple[CaptureWarning, ...]]:
    found: dict[str, list[CaptureWarning]] = {}
    rows = db.execute(
        "SELECT run_id, code, message FROM warnings"
        " WHERE run_id IN (SELECT value FROM json_each(?)) ORDER BY rowid",
        [json.dumps(list(run_ids))],
    )
    for run_id, code, message in rows:
        found.setdefault(run_id, []).append(CaptureWarning(code=code, message=message))
    return {run_id: tuple(those) for run_id, those in found.items()}


class _GpuFacts:
    """What runs are judged by, read once a GPU."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._peaks: dict[str, dict[str, float]] = {}
        self._noise: dict[str, tuple[float | None, dict[str, float]]] = {}

    def peaks(self, gpu_id: str | None, info: dict[str, Any]) -> dict[str, float]:
        """Return the measured peaks that the run is judged by: its own, else those of its GPU.

        Peaks of another time or of another GPU are not mixed in. What files tell of a GPU by its
        model alone may be of several.
        """
        if own := info.get("peaks"):
            return dict(own)
        if gpu_id is None or not is_one_gpu(gpu_id):
            return {}
        if gpu_id not in self._peaks:
            sql = "SELECT name, value FROM gpu_peaks WHERE gpu_id = ?"
            self._peaks[gpu_id] = dict(self._db.execute(sql, [gpu_id]).fetchall())
        return dict(self._peaks[gpu_id])

    def noise_floors(
        self, gpu_id: str | None, info: dict[str, Any]
    ) -> tuple[float | None, dict[str, float]]:
        """Return the noise floor and that of each kind of work: the run's own, else its GPU's."""
        if info.get("noise_floor_frac") is not None:
            return info["noise_floor_frac"], info.get("noise_floors") or {}
        if gpu_id is None or not is_one_gpu(gpu_id):
            return None, {}
        if gpu_id not in self._noise:
            sql = "SELECT noise_floor_frac, info FROM gpus WHERE id = ?"
            row = self._db.execute(sql, [gpu_id]).fetchone()
            floors = (row[0], json.loads(row[1]).get("noise_floors") or {}) if row else (None, {})
            self._noise[gpu_id] = floors
        return self._noise[gpu_id]


_FLAGS = frozenset({"is_regular", "is_opaque"})


def step_view(
    db: Database, run_id: str, primary_pass: str | None, *, is_short: bool = False
) -> StepView:
    """Return the steps of the capture that leads a run: the first of its pass that has some.

    `is_short`: the facts and kernels of a step, and what its host did while the GPU idled.
    Several captures of a pass are ranks that run the same steps.
    """
    rows = db.execute(
        "SELECT id, step_facts FROM captures WHERE run_id = ? AND pass = ? ORDER BY process, id",
        [run_id, primary_pass],
    ).fetchall()
    known = [(capture_id, json.loads(text)) for capture_id, text in rows if text != "{}"]
    if not known:
        return NO_STEPS
    capture_id, facts = next((k for k in known if "source" in k[1]), known[0])
    names = _SHORT_STEP_TABLES if is_short else tables.STEP_TABLES
    wanted = {name: tables.STEP_TABLES[name] for name in names}
    frames = {name: _fetch(db, name, columns, capture_id) for name, columns in wanted.items()}
    classes = dict(
        db.execute(
            "SELECT name, category FROM kernel_names"
            " WHERE name IN (SELECT name FROM step_kernels WHERE capture_id = ?)",
            [capture_id],
        ).fetchall()
    )
    kernels = frames.pop("step_kernels")
    kernels["category"] = kernels["name"].map(classes)
    return StepView(facts=facts, kernels=kernels, **frames)


def _fetch(db: Database, table: str, columns: Sequence[str], capture_id: int) -> pd.DataFrame:
    names = ", ".join(f'"{c}"' for c in columns)
    rows = db.execute(
        f"SELECT {names} FROM {table} WHERE capture_id = ? ORDER BY rowid", [capture_id]
    ).fetchall()
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    index = pd.RangeIndex(len(rows))
    arrays = {c: _column(c, v, index) for c, v in zip(columns, values, strict=True)}
    return pd.DataFrame(arrays, index=index, copy=False)


def _column(name: str, values: Sequence[Any], index: pd.RangeIndex) -> Any:
    """Return a column whose whole numbers stay whole where some are missing."""
    if name in _FLAGS:
        return np.array([bool(v) for v in values], dtype=np.bool_)
    known = [v for v in values if v is not None]
    if known and all(isinstance(v, int) for v in known):
        if len(known) < len(values):
            return pd.array(list(values), dtype="Int64")
        return np.array(values, dtype=np.int64)
    if known and isinstance(known[0], float):
        return np.array(values, dtype=np.float64)
    return pd.Series(values, index=index, dtype=object)

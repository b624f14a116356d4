"""What an export says about itself: versions, options, the GPU, the driver, and nothing private."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.readers.nsys.columns import MAX_TIME_NS
from analysis.readers.nsys.names import as_text
from captures.nsys_database import NsysDatabase

KNOWN_SCHEMA_MAJOR = 3
_OPTIONS = {
    "CUDA_GRAPH_TRACE_OPTIONS:MODE": "nsys_cuda_graph_trace",
    "COLLECT_GPU_MEMORY_USAGE": "nsys_cuda_memory_usage",
    "CUDA_FLUSH_PERIOD": "nsys_cuda_flush_period",
}
_SYSTEM = {
    "NvDriverVersion": "driver",
    "CudaDriverVersion": "cuda_driver",
    "OsDescription": "os",
    "CpuDescription": "cpu",
}
_PATH = re.compile(r"(?<![\w.])(?:/[\w.+@~-]+){2,}/?")
MAX_DIAGNOSTICS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Versions, options and devices, as far as the tables say."""

    tool_version: str | None
    environment: Mapping[str, Any]
    devices: Mapping[int, Mapping[str, Any]]
    "The facts of each GPU, by the number that the kernels have for it."
    device_of: Mapping[tuple[int, int], int] = field(default_factory=dict)
    "(process id, CUDA ordinal) -> GPU id, where the export has the map."
    session_end_ns: int | None = None
    is_session_lost: bool = False
    "The session table is present but invalid."
    diagnostics: tuple[tuple[int, str, int], ...] = ()
    "(severity, text, how often) of warnings and errors, paths shortened."
    is_new_schema: bool = False


def load_facts(database: NsysDatabase) -> Facts:
    """Read the description tables; each may be absent."""
    export = _pairs(database, "META_DATA_EXPORT") or _pairs(database, "EXPORT_META_DATA")
    capture = _pairs(database, "META_DATA_CAPTURE")
    environment: dict[str, Any] = {}
    schema = export.get("EXPORT_SCHEMA_VERSION", "")
    if schema:
        environment["nsys_schema_version"] = schema
    for name, value in capture.items():
        short = name.split(":", 1)[1] if name.startswith("PROCESS_") and ":" in name else name
        if short in _OPTIONS and value:
            environment[_OPTIONS[short]] = value
    traced = _values(database, "META_DATA_CAPTURE", "CAPTURE_EVENT_TYPE")
    if traced:
        environment["nsys_trace"] = ",".join(sorted(set(traced)))
    environment |= _system(database)
    session = _first_row(database, "TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
    if session and isinstance(session[0], int):
        environment["session_start_utc_ns"] = session[0]
    ending = _first_row(database, "ANALYSIS_DETAILS", ("duration",))
    end_ns = ending[0] if ending else None
    is_end_known = isinstance(end_ns, int) and 0 < end_ns < MAX_TIME_NS
    major = schema.split(".", 1)[0]
    device_of = device_map(database)
    return Facts(
        tool_version=export.get("EXPORT_PRODUCT_VERSION"),
        environment=environment,
        devices=_devices(database, "id" if device_of else "cuda_device"),
        device_of=device_of,
        session_end_ns=end_ns if is_end_known else None,
        is_session_lost=database.has("ANALYSIS_DETAILS", "duration") and not is_end_known,
        diagnostics=_diagnostics(database),
        is_new_schema=bool(schema) and major not in map(str, range(1, KNOWN_SCHEMA_MAJOR + 1)),
    )


def _pairs(database: NsysDatabase, table: str) -> dict[str, str]:
    if not database.has(table, "name", "value"):
        return {}
    rows = database.conn.execute(f"SELECT name, value FROM {table}")
    return {as_text(n): as_text(v) for n, v in rows if n is not None and v is not None}


def _values(database: NsysDatabase, table: str, name: str) -> list[str]:
    if not database.has(table, "name", "value"):
        return []
    rows = database.conn.execute(f"SELECT value FROM {table} WHERE name = ?", (name,))
    return [as_text(v) for (v,) in rows if v is not None]


def _first_row(
    database: NsysDatabase, table: str, columns: tuple[str, ...]
) -> tuple[Any, ...] | None:
    if not database.has(table, *columns):
        return None
    row = database.conn.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchone()
    return tuple(row) if row else None


def _system(database: NsysDatabase) -> dict[str, str]:
    pairs = _pairs(database, "TARGET_INFO_SYSTEM_ENV")
    facts = {ours: pairs[theirs] for theirs, ours in _SYSTEM.items() if pairs.get(theirs)}
    if "." not in facts.get("driver", "."):
        del facts["driver"]  # 2022.4 wrote a packed number that is not a version
    return facts


_GPU_COLUMNS = {
    "id": "id",
    "cuDevice": "cuda_device",
    "name": "name",
    "uuid": "uuid",
    "busLocation": "bus",
    "smCount": "num_sms",
    "totalMemory": "memory_bytes",
    "memoryBandwidth": "memory_bandwidth_bytes_per_s",
    "clockRate": "clock_hz",
    "l2CacheSize": "l2_bytes",
    "computeMajor": "major",
    "computeMinor": "minor",
}


_NAMES_A_CARD = re.compile(r"(?=.*[1-9A-Fa-f])[A-Za-z0-9:.-]{7,64}")
"""A uuid, its hash or a place on the bus; zeros alone name none."""


def _devices(database: NsysDatabase, key: str) -> dict[int, Mapping[str, Any]]:
    table = "TARGET_INFO_GPU"
    columns = [c for c in _GPU_COLUMNS if database.has(table, c)]
    by_ordinal: dict[int, Mapping[str, Any]] = {}
    if not columns:
        return by_ordinal
    for row in database.conn.execute(f"SELECT {', '.join(columns)} FROM {table}"):
        pairs = [(_GPU_COLUMNS[c], v) for c, v in zip(columns, row, strict=True)]
        pairs = [(k, as_text(v) if k == "uuid" and v else v) for k, v in pairs]
        facts = {key: value for key, value in pairs if _can_be(key, value)}
        major, minor = facts.pop("major", None), facts.pop("minor", None)
        if isinstance(major, int) and isinstance(minor, int):
            facts["compute_capability"] = f"{major}.{minor}"
        if "uuid" in facts and not facts["uuid"].startswith(("D-", "GPU-", "MIG-")):
            facts["uuid"] = f"GPU-{facts['uuid']}"
        numbers = {name: facts.pop(name, None) for name in ("id", "cuda_device")}
        if isinstance(numbers[key], int):
            by_ordinal.setdefault(numbers[key], facts)
    return by_ordinal


def _can_be(key: str, value: object) -> bool:
    """Tell a fact from a cell of another type, or a number that no GPU has."""
    if key in ("uuid", "bus"):
        return isinstance(value, str) and _NAMES_A_CARD.fullmatch(value) is not None
    if key == "name":
        return isinstance(value, str) and value.strip() != ""
    least = 0 if key in ("id", "cuda_device", "major", "minor") else 1
    return isinstance(value, int) and least <= value < 1 << 62


def device_map(database: NsysDatabase) -> dict[tuple[int, int], int]:
    """Return (process id, CUDA ordinal) -> GPU id; {} where the export has no such map."""
    table = "TARGET_INFO_CUDA_DEVICE"
    if not database.has(table, "gpuId", "cudaId", "pid"):
        return {}
    rows = database.conn.execute(f"SELECT pid, cudaId, gpuId FROM {table}").fetchall()
    return {
        (p, c): g
        for p, c, g in rows
        if all(isinstance(v, int) and 0 <= v < 1 << 31 for v in (p, c, g))
    }


def _diagnostics(database: NsysDatabase) -> tuple[tuple[int, str, int], ...]:
    if not database.has("DIAGNOSTIC_EVENT", "severity", "text"):
        return ()
    idle = _processes_without_kernels(database)
    from_idle = f"globalPid IN ({','.join(map(str, idle))})" if idle else "0"
    rows = database.conn.execute(
        f"SELECT severity, text, count(*), severity = 2 AND {from_idle} AS is_idle"
        " FROM DIAGNOSTIC_EVENT WHERE severity IN (2, 3)"
        " GROUP BY severity, text, is_idle ORDER BY severity DESC, min(rowid)"
    )
    messages = []
    for severity, text, count, is_idle in rows.fetchmany(500):
        shown = without_paths(as_text(text)) if text is not None else ""
        if shown and shown != "(path removed)" and not is_idle:
            messages.append((int(severity), shown, int(count)))
    return tuple(messages[:MAX_DIAGNOSTICS])


def _processes_without_kernels(database: NsysDatabase) -> list[int]:
    """Return the processes with diagnostics that launched nothing, if another one did.

    nsys says "No CUDA events collected" of every helper that torch.compile starts.
    """
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    if not (database.has("DIAGNOSTIC_EVENT", "globalPid") and database.has(kernels, "globalPid")):
        return []
    rows = database.conn.execute(
        f"SELECT globalPid, EXISTS (SELECT 1 FROM {kernels} k WHERE k.globalPid = d.globalPid)"
        " FROM (SELECT DISTINCT globalPid FROM DIAGNOSTIC_EVENT WHERE severity = 2"
        " AND typeof(globalPid) = 'integer' AND globalPid > 0) d"
    ).fetchall()
    return [pid for pid, has_kernels in rows if not has_kernels] if any(h for _, h in rows) else []


def without_paths(text: str) -> str:
    """Return the text with absolute paths cut to their last part: folders name users and hosts."""
    return _PATH.sub(lambda m: m.group().rstrip("/").rsplit("/", 1)[-1], " ".join(text.split()))[
        :500
    ]

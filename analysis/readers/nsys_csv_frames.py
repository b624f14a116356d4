"""Turn rows of `nsys stats` summaries into the frames of `analysis.tables`."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from analysis.readers.nsys_csv_rows import SummaryRow
from analysis.readers.short_name import short_name
from analysis.tables import API_CALL_COLUMNS, KERNEL_COLUMNS, PHASE_COLUMNS, TRANSFER_COLUMNS
from core.trace_rules import api_name, is_wait

_KINDS = {
    "host-to-device": "HtoD",
    "htod": "HtoD",
    "device-to-host": "DtoH",
    "dtoh": "DtoH",
    "device-to-device": "DtoD",
    "dtod": "DtoD",
    "peer-to-peer": "PtoP",
    "ptop": "PtoP",
    "host-to-host": "HtoH",
    "htoh": "HtoH",
    "memset": "memset",
}


def transfer_kind(operation: str) -> str:
    """Return our kind of "[CUDA memcpy HtoD]", "[CUDA memcpy Host-to-Device]", "[CUDA memset]"."""
    text = operation.lower()
    if "unified" in text:
        return "unified"
    return next((kind for word, kind in _KINDS.items() if word in text), "unknown")


def kernel_frame(rows: Sequence[SummaryRow]) -> pd.DataFrame:
    """Return KERNEL_COLUMNS; old reports give one row a shape, new ones one a name."""
    frame = pd.DataFrame(
        {
            "name": [r.name for r in rows],
            "short_name": [short_name(r.name) for r in rows],
            "grid": pd.Series([r.grid for r in rows], dtype=object),
            "block": pd.Series([r.block for r in rows], dtype=object),
            "registers": _unknown(len(rows)),
            "shared_bytes": _unknown(len(rows)),
            "count": [r.count for r in rows],
            "total_ns": _whole(r.total_ns for r in rows),
            "min_ns": _whole(r.min_ns for r in rows),
            "max_ns": _whole(r.max_ns for r in rows),
            "is_opaque": False,
        },
        columns=list(KERNEL_COLUMNS),
    )
    return _largest_first(frame)


def api_frame(rows: Sequence[SummaryRow]) -> pd.DataFrame:
    """Return API_CALL_COLUMNS; calls of one name with and without version suffix become one."""
    frame = pd.DataFrame(
        {
            "name": [api_name(r.name) for r in rows],
            "count": [r.count for r in rows],
            "total_ns": _whole(r.total_ns for r in rows),
            "min_ns": _whole(r.min_ns for r in rows),
            "max_ns": _whole(r.max_ns for r in rows),
        }
    )
    merged = frame.groupby("name", sort=False, as_index=False).agg(
        {"count": "sum", "total_ns": "sum", "min_ns": "min", "max_ns": "max"}
    )
    merged["num_failed"] = 0
    merged["is_sync"] = [is_wait(n) for n in merged["name"]]
    return _largest_first(merged[list(API_CALL_COLUMNS)])


def transfer_frame(blocks: Mapping[str, Sequence[SummaryRow]]) -> pd.DataFrame:
    """Return TRANSFER_COLUMNS from the time summary, with bytes where the size summary is there."""
    times = {transfer_kind(r.name): r for r in blocks.get("memory_time", ())}
    sizes = {transfer_kind(r.name): r for r in blocks.get("memory_size", ())}
    rows = []
    for kind, timed in times.items():
        size = sizes[kind].num_bytes if kind in sizes else None
        rows.append((kind, None, None, timed.count, size, timed.total_ns))
    frame = pd.DataFrame(rows, columns=list(TRANSFER_COLUMNS))
    return _largest_first(frame.astype({"bytes": "Int64", "total_ns": "Int64"}))


def phase_frame(rows: Sequence[SummaryRow]) -> pd.DataFrame:
    """Return PHASE_COLUMNS with host time only: a summary knows no kernels and no nesting."""
    merged: dict[str, tuple[int, int]] = {}
    for row in rows:
        name = row.name[1:] if row.name.startswith(":") else row.name
        count, total = merged.get(name, (0, 0))
        merged[name] = (count + row.count, total + (row.total_ns or 0))
    return pd.DataFrame(
        {
            "path": list(merged),
            "process": 0,
            "num_ranges": [count for count, _ in merged.values()],
            "host_ns": pd.array([total for _, total in merged.values()], dtype="Int64"),
            "projected_ns": _unknown(len(merged)),
            "kernel_ns": _unknown(len(merged)),
            "num_kernels": 0,
            "attribution": "launch_thread",
            "first_start_ns": range(len(merged)),
        },
        columns=list(PHASE_COLUMNS),
    )


def _unknown(size: int) -> pd.api.extensions.ExtensionArray:
    return pd.array([pd.NA] * size, dtype="Int64")


def _whole(values: Iterable[int | None]) -> pd.api.extensions.ExtensionArray | list[int]:
    found = list(values)
    known = [v for v in found if v is not None]
    if len(known) == len(found):
        return known
    return pd.array([pd.NA if v is None else v for v in found], dtype="Int64")


def _largest_first(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)

"""Views built by hand: the comparison knows nothing of databases and files."""

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from analysis.classify import classify
from analysis.readers.nsys.export import read_nsys_sqlite
from analysis.runview import RunRow, RunView
from analysis.tables import (
    API_CALL_COLUMNS,
    COUNTER_COLUMNS,
    GAP_COLUMNS,
    KERNEL_COLUMNS,
    MEMORY_AT_PEAK_COLUMNS,
    MEMORY_POINT_COLUMNS,
    PHASE_COLUMNS,
    RULE_COLUMNS,
    SAMPLE_COLUMNS,
    TRANSFER_COLUMNS,
    empty,
)

RUN_FIELDS = set(RunRow.__dataclass_fields__)


def build_view(processes: tuple[tuple[float, ...], ...] = (), **changes: object) -> RunView:
    """Return a done decode run; `processes` are latencies in ms, a tuple a process."""
    rows = [
        (process, i, round(ms * 1e6))
        for process, samples in enumerate(processes)
        for i, ms in enumerate(samples)
    ]
    run = {
        "id": "r1",
        "name": "decode",
        "source": "submitted",
        "status": "done",
        "workload": "decode",
        "params": {"compile": "none", "context": 512},
        "gpu_model": "NVIDIA H100 80GB HBM3",
    }
    run |= {k: v for k, v in changes.items() if k in RUN_FIELDS}
    view = {
        "summary": {},
        "primary_pass": None,
        "samples": pd.DataFrame(rows, columns=list(SAMPLE_COLUMNS)),
        "profiled_samples": empty((*SAMPLE_COLUMNS, "pass")),
        "kernels": empty((*KERNEL_COLUMNS, "category", "origin", "confidence", "rule")),
        "phases": empty(PHASE_COLUMNS),
        "api_calls": empty(API_CALL_COLUMNS),
        "transfers": empty(TRANSFER_COLUMNS),
        "gaps": empty(GAP_COLUMNS),
        "memory": {},
        "memory_points": empty(MEMORY_POINT_COLUMNS),
        "memory_at_peak": empty(MEMORY_AT_PEAK_COLUMNS),
        "counters": empty((*COUNTER_COLUMNS, "category", "origin")),
        "rules": empty(RULE_COLUMNS),
        "captures": empty(("id", "pass", "process", "kind", "tool", "tool_version")),
        "metrics": empty(("pass", "phase", "name", "value", "unit")),
        "span_paths": (),
        "warnings": (),
        "cost": {},
        "peaks": {},
        "noise_floor_frac": None,
    }
    view |= {k: v for k, v in changes.items() if k in view}
    return RunView(run=RunRow(**run), **view)  # type: ignore[arg-type]


def read_view(path: Path, folder: Path, **changes: object) -> RunView:
    """Return the view of a real nsys export, read as an import would read it."""
    tables = read_nsys_sqlite(path)
    spans_path = folder / f"{path.stem}.parquet"
    pq.write_table(tables.spans, spans_path)
    kernels = tables.kernels.sort_values("total_ns", ascending=False, ignore_index=True)
    classes = {name: classify(name) for name in kernels["name"].unique()}
    for column in ("category", "origin", "confidence", "rule"):
        kernels[column] = [
            getattr(classes[n], column)
            if column == "confidence"
            else str(getattr(classes[n], column))
            for n in kernels["name"]
        ]
    view: dict[str, object] = {
        "id": path.stem,
        "name": path.stem,
        "source": "imported",
        "params": {},
        "summary": tables.summary,
        "primary_pass": "nsys",
        "kernels": kernels,
        "phases": tables.phases,
        "transfers": tables.transfers,
        "gaps": tables.gaps,
        "span_paths": (spans_path,),
    }
    return build_view(**(view | changes))  # type: ignore[arg-type]

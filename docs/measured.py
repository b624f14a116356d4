"""The generated parts of results.md: from the example runs and from `bench/kernels.py`'s rows.

The example runs are loaded into a database of their own; the tables and charts of studies come out
of the functions that `warpboard study` prints with.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from analysis.classify import is_gemm_like
from analysis.compare.metrics import num_iterations
from analysis.export import to_markdown
from analysis.export_document import study_document
from analysis.export_svg import as_file
from analysis.runview import RunView
from analysis.studies import run_study
from analysis.studies.engine.records import StudyTable
from app.demo.load import load_demo
from core.config import data_dir
from core.gpus import datasheet_peaks
from db.connection import opened
from db.fetch import run_view

RESULTS = Path(__file__).resolve().parent / "results"
KERNEL_ROWS = RESULTS / "kernels-h200.json"
STUDIES = (
    "decode-latency",
    "compile-speedup",
    "gpu-scoreboard",
    "kernel-origin",
    "gemm-fraction",
    "softmax-matmul",
    "memory-phases",
)
"""The studies that the example runs fill."""
DRAWN = ("decode-latency", "compile-speedup", "gemm-fraction", "memory-phases")
"""Of these, the ones whose chart says more than the table."""
SAME_PRODUCTS = (
    ("decode 2 layers, eager", "H200: decode 2 layers, eager"),
    (
        "decode 2 layers, reduce-overhead",
        "H200: decode 2 layers, reduce-overhead, graphs skipped",
    ),
    ("decode 2 layers, max-autotune", "H200: decode 2 layers, max-autotune"),
)
"""Example runs with the same matrix products on both GPUs; the rest of the layer differs (RoPE)."""
_UNKNOWN = ""


@cache
def example_views() -> tuple[RunView, ...]:
    """Return the example runs, from a database that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        data = data_dir(folder)
        ids = [found.run_id for found in load_demo(data, lambda name: None)]
        with opened(data.db_path) as db:
            return tuple(run_view(db, data, run_id) for run_id in ids)


def example_runs() -> str:
    """Return the headline numbers of every example run that has a GPU or a latency."""
    head = (
        "run",
        "GPU",
        "latency, ms",
        "95 % interval",
        "processes",
        "idle under nsys, %",
        "GEMM, %",
    )
    rows = []
    for view in example_views():
        latency = view.summary.get("latency_ms") or {}
        ci95 = latency.get("ci95")
        rows.append(
            (
                view.run.name,
                view.run.gpu_model or "not named",
                "OOM" if view.run.status == "oom" else _number(latency.get("median"), 3),
                f"{ci95[0]:.3f} to {ci95[1]:.3f}" if ci95 else _UNKNOWN,
                str(view.samples["process"].nunique()) if len(view.samples) else _UNKNOWN,
                _number(view.summary.get("idle_frac"), 1, 100),
                _number(view.summary.get("gemm_frac"), 1, 100),
            )
        )
    return _table(head, rows)


def profiling_overhead() -> str:
    """Return what each profiler pass costs: its iteration's median over the clean pass's."""
    head = ("run", "clean, ms", "nsys, ms", "memory, ms", "trace, ms", "kernels an iteration")
    rows = []
    for view in example_views():
        clean_ms = (view.summary.get("latency_ms") or {}).get("median")
        if not clean_ms or view.profiled_samples.empty:
            continue
        medians = view.profiled_samples.groupby("pass")["latency_ns"].median() / 1e6
        num, kernels = num_iterations(view), view.summary.get("num_kernels")
        rows.append(
            (
                view.run.name,
                f"{clean_ms:.3f}",
                *(
                    f"{medians[p]:.3f} (x {medians[p] / clean_ms:.2f})" if p in medians else ""
                    for p in ("nsys", "memory", "trace")
                ),
                str(round(kernels / num)) if num and kernels else _UNKNOWN,
            )
        )
    return _table(head, rows)


def projected_products() -> str:
    """Return the time of matrix products on the H200 as projected from the H100, and measured."""
    head = ("job", "H100, us", "projected to H200, us", "H200, us", "error, %")
    views = {view.run.name: view for view in example_views()}
    rows = []
    for on_h100, on_h200 in SAME_PRODUCTS:
        a, b = views[on_h100], views[on_h200]
        a_us, b_us = _products_us(a), _products_us(b)
        peaks = (datasheet_peaks(a.run.gpu_model), datasheet_peaks(b.run.gpu_model))
        projected_us = a_us * peaks[0]["copy_bytes_per_s"] / peaks[1]["copy_bytes_per_s"]
        error = f"{100 * (projected_us / b_us - 1):+.1f}"
        rows.append((on_h100, f"{a_us:.1f}", f"{projected_us:.1f}", f"{b_us:.1f}", error))
    return _table(head, rows)


def _products_us(view: RunView) -> float:
    """Return the kernel time of matrix products an iteration."""
    total_ns = view.kernels[view.kernels["category"].map(is_gemm_like)]["total_ns"].sum()
    return float(total_ns) / 1e3 / (num_iterations(view) or 1)


def study_tables() -> str:
    """Return each study as `warpboard study NAME` prints it, with its command and chart."""
    parts = []
    for name in STUDIES:
        title, body = to_markdown(_result(name)).strip().removeprefix("## ").split("\n", 1)
        body = body.strip().replace("\n### ", "\n#### ")
        pictures = "".join(
            f"\n\n![{title}, chart](results/{path.name})"
            for path in charts()
            if path.name.startswith(f"{name}-")
        )
        parts.append(f"### {title}\n\n`warpboard study {name}`\n\n{body}{pictures}")
    return "\n\n".join(parts)


@cache
def charts() -> dict[Path, str]:
    """Return the text of every chart file of the studies: {path: SVG}."""
    return {
        RESULTS / f"{name}-{number}.svg": as_file(table.svg)
        for name in DRAWN
        for number, table in enumerate(study_document(_result(name)).tables, start=1)
        if table.svg
    }


def kernel_table(section: str) -> str:
    """Return the rows of one section of `bench/kernels.py`, columns by what it measured."""
    columns = {
        "ms": ("ms", 4, 1.0),
        "graph_ms": ("ms, graph replay", 4, 1.0),
        "tflop_per_s": ("TFLOP/s", 0, 1.0),
        "gbytes_per_s": ("GB/s", 0, 1.0),
        "of_copy": ("share of copy bandwidth, %", 0, 100.0),
    }
    rows = [r for r in _kernels()["rows"] if r["section"] == section]
    used = [key for key in columns if any(key in r for r in rows)]
    head = ("case", "variant", *(columns[k][0] for k in used), "relative error to float64")
    lines = []
    for row in rows:
        error = row.get("rel_error")
        cells = [_number(row.get(k), columns[k][1], columns[k][2]) for k in used]
        lines.append((row["case"], row["variant"], *cells, "" if error is None else f"{error:.1e}"))
    return _table(head, lines)


def kernel_goals() -> str:
    """Return each goal of the kernels and what was reached."""
    rows = [
        (g["goal"], f"{100 * g['reached']:.0f}", f"{100 * g['limit']:.0f}", _met(g))
        for g in _kernels()["goals"]
    ]
    return _table(("goal", "reached, %", "limit, %", "met"), rows)


def _met(goal: Mapping[str, Any]) -> str:
    return "yes" if goal["met"] else "no"


@cache
def _result(study: str) -> StudyTable:
    return run_study(study, example_views())


@cache
def _kernels() -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(KERNEL_ROWS.read_text(encoding="utf-8"))
    return found


def _number(value: float | None, digits: int, scale: float = 1.0) -> str:
    return _UNKNOWN if value is None else f"{value * scale:.{digits}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

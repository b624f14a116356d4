"""The generated tables of results.md out of the rows of `bench/kernels.py`."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from docs.measured import RESULTS, number, table

FILES = {
    "kernels-h100": "H100", "kernels-h200": "H200", "attention-h200": "H200",
    "attention-64-h200": "H200", "decode-h200": "H200",
}  # fmt: skip
"""Files of results/ that `bench/kernels.py` left, and their GPU; of a case, the last one counts."""
REPLACED = {"kernels-h100": ("attention_backward",), "kernels-h200": ("moe",)}
"""Sections of a file that measured kernels which are not those of today, and no later file has."""


def kernel_table(section: str) -> str:
    """Return the rows of one section, columns by what it measured."""
    columns = {
        "ms": ("ms", 4, 1.0),
        "graph_ms": ("ms, graph replay", 4, 1.0),
        "tflop_per_s": ("TFLOP/s", 0, 1.0),
        "gbytes_per_s": ("GB/s", 0, 1.0),
        "of_copy": ("share of copy bandwidth, %", 0, 100.0),
    }
    rows = [(gpu, r) for gpu, r in _kept("rows") if r["section"] == section]
    used = [key for key in columns if any(key in r for _, r in rows)]
    head = ("case", "GPU", "variant", *(columns[k][0] for k in used), "relative error to float64")
    lines = []
    for gpu, row in rows:
        error = row.get("rel_error")
        cells = [number(row.get(k), columns[k][1], columns[k][2]) for k in used]
        error_text = "" if error is None else f"{error:.1e}"
        lines.append((row["case"], gpu, row["variant"], *cells, error_text))
    return table(head, lines)


def kernel_goals() -> str:
    """Return each goal of the kernels and what was reached."""
    rows = [
        (
            goal["goal"],
            gpu,
            f"{100 * goal['reached']:.0f}",
            f"{100 * goal['limit']:.0f}",
            "yes" if goal["met"] else "no",
        )
        for gpu, goal in _kept("goals")
    ]
    return table(("goal", "GPU", "reached, %", "limit, %", "met"), rows)


def decode_counters() -> str:
    """Return what Nsight Compute counted of the attention of one query."""
    columns = {
        "programs": ("programs", 0, 1),
        "waves": ("waves", 2, 1),
        "resident_per_sm": ("resident a multiprocessor, at most", 0, 1),
        "dram_pct": ("DRAM throughput, % of peak", 0, 1),
        "duration_ns": ("duration, us", 1, 1e-3),
    }
    rows = [
        (
            row["case"],
            *(number(row[k], digits, factor) for k, (_, digits, factor) in columns.items()),
        )
        for row in _kernels("decode-counters-h200")["rows"]
    ]
    return table(("case", *(head for head, _, _ in columns.values())), rows)


def _kept(part: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the GPU and each row or goal that is of the kernels of today."""
    last = {
        (gpu, row.get("section"), row.get("case", row.get("goal"))): file
        for file, gpu in FILES.items()
        for row in _kernels(file)[part]
    }
    for file, gpu in FILES.items():
        for row in _kernels(file)[part]:
            section, case = row.get("section"), row.get("case", row.get("goal"))
            name = str(section or row["goal"])
            is_of_today = not name.startswith(REPLACED.get(file, ("-",)))
            if is_of_today and last[gpu, section, case] == file:
                yield gpu, row


@cache
def _kernels(file: str) -> Mapping[str, Any]:
    path = RESULTS / f"{file}.json"
    kernels: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kernels

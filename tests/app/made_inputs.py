"""Small files of every kind that a person brings, written by hand arithmetic: what was read wrongly
once, with other numbers, names, orders, units and sizes."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
GPU = {"id": 0, "name": "NVIDIA A10G", "numSms": 80, "totalGlobalMem": 23_609_475_072}


def span(cat: str, name: str, ts: float, dur: float, *, tid: Any = 1, **args: Any) -> Event:
    where = {"pid": args.pop("pid", 1), "tid": tid, "ts": ts, "dur": dur}
    return {"ph": "X", "cat": cat, "name": name, **where, "args": args}


def launched(
    name: str, ts: float, dur: float, number: int, *, at: float | None = None, **where: Any
) -> list[Event]:
    """Return a launch of 1 us at `at` (default: 3 us before the kernel) and its kernel."""
    host = {k: where.pop(k) for k in ("pid", "tid") if k in where}
    begin = ts - 3 if at is None else at
    device = {"device": 0, "stream": 7, **where}
    return [
        span("cuda_runtime", "cudaLaunchKernel", begin, 1, correlation=number, **host),
        span(
            "kernel",
            name,
            ts,
            dur,
            tid=device["stream"],
            pid=where.get("gpu_pid", 0),
            correlation=number,
            grid=[2, 1, 1],
            block=[64, 1, 1],
            **device,
        ),
    ]


def trace(path: Path, events: Iterable[Event], **header: Any) -> Path:
    found = {"schemaVersion": 1, "deviceProperties": [GPU], **header, "traceEvents": [*events]}
    path.write_text(json.dumps(found))
    return path


def table(rows: Sequence[Sequence[Any]], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def summed(
    names: Mapping[str, tuple[int, float]],
    *,
    unit: str = "ns",
    count: str = "Instances",
    last: str = "Name",
    category: Mapping[str, str] | None = None,
) -> str:
    """Return a report of `nsys stats`: name -> (count, total in the unit)."""
    kinds = ("Avg", "Med", "Min", "Max", "StdDev")
    heads = ["Time (%)", f"Total Time ({unit})", count, *(f"{k} ({unit})" for k in kinds)]
    rows: list[list[Any]] = [[*heads, *(["Category"] if category else []), last]]
    whole = sum(total for _, total in names.values())
    for name, (number, total) in names.items():
        mean = total / number
        start = [round(100 * total / whole, 1), total, number, mean, mean, mean, mean, 0]
        rows.append([*start, *([category[name]] if category else []), name])
    return table(rows)


def sized(names: Mapping[str, tuple[int, float]], unit: str = "MB") -> str:
    kinds = ("Avg", "Med", "Min", "Max", "StdDev")
    heads = [f"Total ({unit})", "Count", *(f"{k} ({unit})" for k in kinds), "Operation"]
    rows: list[list[Any]] = [heads]
    for name, (number, total) in names.items():
        mean = total / number
        rows.append([total, number, mean, mean, mean, mean, 0, name])
    return table(rows)

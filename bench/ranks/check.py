"""Hold the numbers of ranks against plain sorted intervals, and against HolisticTraceAnalysis.

    python -m bench.ranks.check FILE... [--hta-python VENV/bin/python]

Reads PyTorch traces with json and nsys exports with sqlite3, by no code of the product, and
compares each rank's kernel, compute, communication, exposed and idle time [ns], idle time by
whether the next kernel was launched in it, and bus bandwidth. With a Python that has
HolisticTraceAnalysis, its overlap, compute and idle time stand beside, and what makes them differ:
it counts copies as busy and leaves out GPU work whose launch was not recorded.
"""

import argparse
import gzip
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from analysis.readers import read
from analysis.trace.rank_numbers import RankPart
from analysis.trace.rank_times import join_ranks
from tests.analysis.plain_intervals import common_ns, length_ns, union

TALK = re.compile(
    r"nccl|rccl|cross_device_reduce|(one|two)_shot_all_?reduce|allreduce_|_all_reduce", re.I
)
BYTES = {"float": 4, "bfloat16": 2, "half": 2, "byte": 1, "char": 1, "bool": 1, "int": 4}
BYTES |= {"long": 8, "double": 8}
COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
HTA = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/", include_last_profiler_step=True)
b = t.get_temporal_breakdown(visualize=False).iloc[0]
o = t.get_comm_comp_overlap(visualize=False).iloc[0, 1]
print(json.dumps([float(o), float(b["compute_time(us)"]), float(b["idle_time(us)"])]))
"""


class Op(NamedTuple):
    """A GPU operation of a capture, times in ns."""

    place: tuple[Any, ...]
    start: int
    end: int
    kind: str
    "`talk`, `compute` or `copy`."
    launched: int | None
    arguments: dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--hta-python")
    options = parser.parse_args()
    num_wrong = 0
    for path in options.files:
        ops = list(_nsys(path) if path.suffix == ".sqlite" else _torch(path))
        wrong = compare(path, ops)
        num_wrong += bool(wrong)
        print(f"{'DIFFERS' if wrong else 'equal':8}{path.name}: {_told(ops)}", *wrong, sep="\n    ")
        if options.hta_python and path.suffix != ".sqlite" and any(op.kind == "talk" for op in ops):
            print(f"    {_hta(options.hta_python, path, ops)}")
    return 1 if num_wrong else 0


def _torch(path: Path) -> Iterator[Op]:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    launched = {
        e["args"]["correlation"]: _ns(e["ts"])
        for e in events
        if str(e.get("cat")).lower() in ("cuda_runtime", "cuda_driver", "runtime")
        and e.get("args", {}).get("correlation")
    }
    for e in events:
        kind = str(e.get("cat")).lower()
        if e.get("ph") != "X" or kind not in ("kernel", *COPIES):
            continue
        start, arguments = _ns(e["ts"]), e.get("args", {})
        kind_of_op = "copy" if kind != "kernel" else "talk" if TALK.search(e["name"]) else "compute"
        when = launched.get(arguments.get("correlation"))
        yield Op((e["pid"],), start, start + _ns(e["dur"]), kind_of_op, when, arguments)


def _ns(us: Any) -> int:
    return int((Decimal(us) * 1000).to_integral_value())


def _nsys(path: Path) -> Iterator[Op]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        columns = {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}
        process = "k.globalPid" if "globalPid" in columns else "0"
        query = f"SELECT k.start, k.end, s.value, k.deviceId, {process} FROM {table} k "
        for start, end, name, device, pid in conn.execute(
            query + "JOIN StringIds s ON s.id = k.demangledName"
        ):
            kind_of_op = "talk" if TALK.search(name) else "compute"
            yield Op((pid, device), start, end, kind_of_op, None, {})


def compare(path: Path, ops: Sequence[Op]) -> list[str]:
    """Return what the product says otherwise; [] if nothing."""
    tables = read(path)
    frame = tables.ranks
    columns = ["num_kernels", "kernel_time_ns", "compute_ns", "communication_ns", "exposed_ns"]
    columns += ["busy_ns", "span_ns"]
    of_product = [] if frame is None else sorted(map(tuple, frame[columns].to_numpy().tolist()))
    own = sorted(map(_rank, _by_place(ops).values()))
    wrong = [] if of_product == own else [f"ranks: {of_product}, plain {own}"]
    if len(own) == 1 and tables.gaps is not None and path.suffix != ".sqlite":
        causes = tables.gaps.groupby("cause")["total_ns"].sum().to_dict()
        causes.pop("transfer", None)
        queued = causes.pop("unknown", 0)
        if (sum(causes.values()), queued) != _idle(ops):
            wrong.append(f"idle: {(sum(causes.values()), queued)}, plain {_idle(ops)}")
    if own and frame is not None and tables.collectives is not None:
        part = RankPart(file_name=path.name, ranks=frame, collectives=tables.collectives)
        joined = join_ranks([part])
        assert joined is not None
        table = joined.collectives.dropna(subset=["bus_gbps", "group_size"])
        bus = sorted(table["bus_gbps"].tolist())
        plain = sorted(_bus(ops))
        if len(bus) != len(plain) or not all(map(_is_near, bus, plain)):
            wrong.append(f"bus bandwidth: {bus}, plain {plain}")
    return wrong


def _is_near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12)


def _by_place(ops: Sequence[Op]) -> dict[tuple[Any, ...], list[Op]]:
    by_place = defaultdict(list)
    for op in ops:
        if op.kind != "copy":
            by_place[op.place].append(op)
    return by_place


def _spans(ops: Sequence[Op], *kinds: str) -> list[list[int]]:
    return union([(op.start, op.end) for op in ops if op.kind in kinds])


def _rank(ops: Sequence[Op]) -> tuple[int, ...]:
    talk, compute = _spans(ops, "talk"), _spans(ops, "compute")
    busy = _spans(ops, "talk", "compute")
    exposed = length_ns(talk) - common_ns(talk, compute)
    total = sum(op.end - op.start for op in ops)
    span = busy[-1][1] - busy[0][0]
    return (
        *(len(ops), total, length_ns(compute), length_ns(talk)),
        *(exposed, length_ns(busy), span),
    )


def _idle(ops: Sequence[Op]) -> tuple[int, int]:
    """Return idle time, copies left out, before kernels launched in it and before queued ones."""
    copies = _spans(ops, "copy")
    late = queued = 0
    reach = None
    for op in sorted(op for op in ops if op.kind != "copy"):
        if reach is not None and op.start > reach:
            rest = op.start - reach - common_ns(copies, [[reach, op.start]])
            is_late = op.launched is not None and op.launched >= reach
            late, queued = late + rest * is_late, queued + rest * (not is_late)
        reach = op.end if reach is None else max(reach, op.end)
    return late, queued


def _bus(ops: Sequence[Op]) -> list[float]:
    """Return GB/s of each collective, group and size by the median call."""
    calls = defaultdict(list)
    for op in ops:
        name, size = op.arguments.get("Collective name"), op.arguments.get("Group size", 0)
        if op.kind == "talk" and name and size > 1 and op.arguments.get("dtype"):
            elements = max(op.arguments["In msg nelems"], op.arguments["Out msg nelems"])
            num_bytes = elements * BYTES[str(op.arguments["dtype"]).lower()]
            group = op.arguments.get("Process Group Name"), op.arguments.get("Process Group Ranks")
            calls[str(name).lower(), group, size, num_bytes].append(op.end - op.start)
    return [
        num_bytes / median(durations) * _factor(name, size)
        for (name, _, size, num_bytes), durations in calls.items()
        if num_bytes and median(durations)
    ]


def _factor(name: str, size: int) -> float:
    if "allreduce" in name:
        return 2 * (size - 1) / size
    is_share = any(w in name for w in ("gather", "scatter", "all_to_all"))
    return (size - 1) / size if is_share else 1.0


def _told(ops: Sequence[Op]) -> str:
    ranks = [_rank(rows) for rows in _by_place(ops).values()]
    talk, exposed = sum(r[3] for r in ranks), sum(r[4] for r in ranks)
    return f"{len(ranks)} ranks, communication {talk} ns, exposed {exposed} ns"


def _hta(python: str, path: Path, ops: Sequence[Op]) -> str:
    """Return HTA's answers beside ours, over all operations and over those with a launch."""
    env = os.environ | {"HTA_DISABLE_NS_ROUNDING": "1"}
    done = subprocess.run(
        [python, "-c", HTA, str(path.resolve())], env=env, capture_output=True, text=True
    )
    if done.returncode:
        return f"HTA: {done.stderr.strip().splitlines()[-1]}"
    overlap, compute_us, idle_us = json.loads(done.stdout.splitlines()[-1])
    launched = [op for op in ops if op.launched is not None]
    lines = [f"HTA: overlap {overlap} %, compute {compute_us:.3f} us, idle {idle_us:.3f} us"]
    for name, counted in (("all", list(ops)), ("launched", launched)):
        talk, compute = _spans(counted, "talk"), _spans(counted, "compute")
        every = _spans(counted, "talk", "compute", "copy")
        kernels = _spans(counted, "talk", "compute")
        share = 100 * common_ns(talk, compute) / length_ns(talk) if talk else 0.0
        idle = [(s[-1][1] - s[0][0] - length_ns(s)) / 1e3 for s in (every, kernels)]
        lines.append(
            f"{name} ({len(counted)}): overlap {share:.2f} %, compute "
            f"{length_ns(compute) / 1e3:.3f} us, idle {idle[0]:.3f} us, between kernels "
            f"{idle[1]:.3f} us"
        )
    return "\n    ".join(lines)


if __name__ == "__main__":
    sys.exit(main())

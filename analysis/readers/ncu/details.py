"""What ncu says of a launch beyond its table row: warp stalls, hit rates, hot instructions.

Names: NVIDIA Nsight Compute documentation, "Metrics Reference", and the section files
MemoryWorkloadAnalysis, WarpStateStats, SchedulerStats and SourceCounters, versions 2022.4 to
2025.3. Each figure has the raw page's name and, where the details page has it, that page's.

The source page is one table a launch: a row `"Kernel Name","NAME"`, a header, a row an instruction.
Which columns there are depends on the version and on what was collected.
"""

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from analysis.readers.ncu.counters import Values
from analysis.tables import COUNTER_SOURCE_COLUMNS, CaptureKind, CaptureTables
from captures.opening import read_text, reading
from core.errors import CaptureError

WAITS, HITS, TRAFFIC, MEMORY, SCHEDULER = (
    "why warps wait",
    "hit rate",
    "memory traffic",
    "memory use",
    "scheduler",
)
_OF_PEAK = "avg.pct_of_peak_sustained_elapsed"

_FIGURES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (HITS, "L1", "%", ("l1tex__t_sector_hit_rate.pct", "L1/TEX Hit Rate")),
    (HITS, "L2", "%", ("lts__t_sector_hit_rate.pct", "L2 Hit Rate")),
    (HITS, "constants", "%", ("idc__request_hit_rate.pct",)),
    (HITS, "instructions", "%", ("sm__icc_request_hit_rate.pct",)),
    (TRAFFIC, "DRAM read", "byte", ("dram__bytes_read.sum",)),
    (TRAFFIC, "DRAM written", "byte", ("dram__bytes_write.sum",)),
    (TRAFFIC, "L2 to L1", "byte", ("l1tex__m_xbar2l1tex_read_bytes.sum",)),
    (TRAFFIC, "L1 to L2", "byte", ("l1tex__m_l1tex2xbar_write_bytes.sum",)),
    *(
        (TRAFFIC, f"{memory} {what}", "", (f"l1tex__t_requests_pipe_lsu_mem_{memory}_op_{op}.sum",))
        for memory in ("global", "local")
        for op, what in (("ld", "loads"), ("st", "stores"))
    ),
    (TRAFFIC, "shared bank conflicts", "", ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",)),
    (MEMORY, "busy", "%", (f"gpu__compute_memory_access_throughput.{_OF_PEAK}", "Mem Busy")),
    (MEMORY, "bandwidth", "%",
     (f"gpu__compute_memory_request_throughput.{_OF_PEAK}", "Max Bandwidth")),
    (MEMORY, "pipes busy", "%", (f"sm__memory_throughput.{_OF_PEAK}", "Mem Pipes Busy")),
    (SCHEDULER, "cycles with an eligible warp", "%",
     ("smsp__issue_active.avg.pct_of_peak_sustained_active", "One or More Eligible")),
    (SCHEDULER, "active warps", "warp", ("smsp__warps_active.avg.per_cycle_active",
                                         "Active Warps Per Scheduler")),
    (SCHEDULER, "eligible warps", "warp", ("smsp__warps_eligible.avg.per_cycle_active",
                                           "Eligible Warps Per Scheduler")),
    (SCHEDULER, "cycles of a warp per instruction", "cycle",
     ("smsp__average_warp_latency_per_inst_issued.ratio", "Warp Cycles Per Issued Instruction")),
    (SCHEDULER, "active threads of a warp", "",
     ("smsp__thread_inst_executed_per_inst_executed.ratio", "Avg. Active Threads Per Warp")),
)  # fmt: skip
"""Group, label, base unit, names of which the first that was collected counts."""
_RATIO = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
_SAMPLES = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+?)")

Detail = tuple[str, str, float, str]
"""Group, name, value, unit."""


def details_of(values: Values) -> list[Detail]:
    """Return the collected figures in a fixed order; stall reasons by size."""
    by_name = {name: value for (name, _), value in values.items() if not math.isnan(value)}
    details = [*sorted(_waits(by_name), key=lambda d: -d[2])]
    for group, label, unit, names in _FIGURES:
        value = next((by_name[n] for n in names if n in by_name), None)
        if value is not None:
            details.append((group, label, value, unit))
    return details


def _waits(by_name: dict[str, float]) -> Iterator[Detail]:
    """Yield stall reasons as stalled warps per issuing warp, else as stall samples."""
    for pattern, unit in ((_RATIO, "warps for each that issues"), (_SAMPLES, "samples")):
        matches = [(pattern.fullmatch(name), value) for name, value in by_name.items()]
        reasons = [(m[1], v) for m, v in matches if m and not m[1].endswith("_not_issued")]
        if any(value for _, value in reasons):
            yield from ((WAITS, r.replace("_", " "), v, unit) for r, v in reasons if v)
            return


MOST = 40
"""Instructions kept of each launch: those with the most samples."""
MAX_LAUNCHES = 200
_STALL_SAMPLES = (
    "Warp Stall Sampling (All Samples)",
    "Warp Stall Sampling (All)",
    "# Samples",
    "Samples",
)
_EXECUTED = ("Instructions Executed", "# Instructions Executed")
_MAX_NUMBER = 1e18
_STALL = "stall_"
_REMEDY = "Export it again with `ncu --import FILE --csv --page source`"


@dataclass(slots=True)
class _Table:
    """The instructions of one launch."""

    kernel: str
    header: list[str]
    rows: list[tuple[int, str, float, float | None, str | None]] = field(default_factory=list)
    "Number, instruction, samples, executed, reason that most samples give."
    place: dict[str, int] = field(init=False)
    "Column -> its place; the last of several that have one name."

    def __post_init__(self) -> None:
        self.place = {name: i for i, name in enumerate(self.header)}

    def cell(self, cells: list[str], name: str) -> str | None:
        """Return a row's cell of that column, None without the column."""
        place = self.place.get(name)
        return None if place is None else cells[place]


def read_ncu_source(path: Path) -> CaptureTables:
    """Return `counter_sources`; CaptureError where the file holds no instruction."""
    with reading(path):
        text = read_text(path)
    launches = list(_tables(text))[:MAX_LAUNCHES]
    rows = [row for number, table in enumerate(launches) for row in _most_sampled(number, table)]
    if not rows:
        raise CaptureError(path, "ncu's source page has no instruction with samples", _REMEDY)
    return CaptureTables(
        kind=CaptureKind.NCU_SOURCE,
        path=path,
        tool="ncu",
        counter_sources=pd.DataFrame(rows, columns=list(COUNTER_SOURCE_COLUMNS)),
    )


def _tables(text: str) -> Iterator[_Table]:
    kernel = ""
    table: _Table | None = None
    for cells in csv.reader(io.StringIO(text, newline="")):
        if len(cells) >= 2 and cells[0].strip() == "Kernel Name":
            kernel, table = cells[1].strip(), None
        elif "Source" in cells and any(name in cells for name in _STALL_SAMPLES):
            table = _Table(kernel, cells)
            yield table
        elif table is not None and len(cells) == len(table.header):
            _add(table, cells)


def _add(table: _Table, cells: list[str]) -> None:
    samples = next(
        (n for s in _STALL_SAMPLES if (n := _number(table.cell(cells, s))) is not None), None
    )
    if not samples:
        return
    stalls = {k: _number(cells[i]) or 0.0 for k, i in table.place.items() if k.startswith(_STALL)}
    worst = max(stalls, key=lambda k: stalls[k], default=None)
    executed = (_number(table.cell(cells, name)) for name in _EXECUTED)
    table.rows.append(
        (
            int(_number(table.cell(cells, "#")) or len(table.rows) + 1),
            cells[table.place["Source"]].strip()[:500],
            samples,
            next((n for n in executed if n is not None), None),
            worst.removeprefix(_STALL).replace("_", " ") if worst and stalls[worst] else None,
        )
    )


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < _MAX_NUMBER else None


def _most_sampled(number: int, table: _Table) -> Iterator[tuple[object, ...]]:
    whole = sum(row[2] for row in table.rows)
    for line, text, samples, executed, stall in sorted(table.rows, key=lambda r: -r[2])[:MOST]:
        yield number, table.kernel, line, text, samples, samples / whole, executed, stall

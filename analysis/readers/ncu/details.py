"""Counters of a launch beyond its table row: warp stall reasons, hit rates, memory traffic.

Names: NVIDIA Nsight Compute documentation, "Metrics Reference", and the section files
MemoryWorkloadAnalysis, WarpStateStats, SchedulerStats and SourceCounters, versions 2022.4 to
2025.3. Each figure has the raw page's name and, where the details page has it, that page's.
"""

import math
import re
from collections.abc import Iterator

from analysis.readers.ncu.counters import Values

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

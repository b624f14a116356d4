"""For a busy GPU: is it memory or arithmetic? From counters, else from the cost model.

With it: what is said of a run without kernels, or whose kernels took no time, which is not a limit.
"""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.classify import OPAQUE, Category, fractions
from analysis.roofline import utilisation
from analysis.runview import RunView
from analysis.tables import CaptureKind
from analysis.verdict.facts import RunVerdict, VerdictKind, counted, milliseconds, percent

HIGH_PCT = 60.0
"""Nsight Compute's own limit: above 60 % of a unit's peak that unit is what limits a kernel."""
HIGH_FRAC = 0.5
"""An iteration that reaches half of a peak is said to be limited by it."""


_STEPS = {
    VerdictKind.MEMORY_BOUND: (
        "Move fewer bytes: fuse pointwise work (torch.compile), a smaller dtype or quantised "
        "weights, a larger batch for the same weights",
    ),
    VerdictKind.COMPUTE_BOUND: (
        "Do the arithmetic in a faster dtype (tf32, bf16, fp8) or do less of it; compare MFU with "
        "the measured peak",
    ),
}
_ON_CHIP = (
    "Move fewer bytes between shared memory and registers: tensor cores (tf32, bf16), larger tiles "
    "a thread, no bank conflicts",
)
_STARVED = (
    "See waves per SM and occupancy on the Counters tab: a larger batch or other tiles fill the "
    "GPU",
)
_RECORD = (
    "Record hardware counters (the ncu profiler) for the longest kernels",
    "Measure this GPU's peaks (warpboard doctor --measure) and give the workload a cost model",
)


def busy_limit(view: RunView) -> RunVerdict:
    """Return the limit of a GPU that seldom waits: counters first, then cost model and peaks."""
    return _from_counters(view) or _from_cost(view) or _cannot_tell(view)


def limit_without_kernels(view: RunView) -> RunVerdict | None:
    """Return the limit of a run that has counters or a cost model but no kernel table."""
    return _from_counters(view) or _from_cost(view)


def _from_counters(view: RunView) -> RunVerdict | None:
    """Weigh the launches' own utilisation by their duration: share = sum(pct * ns) / sum(ns).

    Nsight Compute's memory throughput is the highest of all levels, L1 and shared memory among
    them, which matrix products in fp32 fill without asking for a byte of DRAM. So memory is DRAM
    and L2 where those are known, and what is on the chip comes after the SMs.
    """
    counters = view.counters
    if counters.empty or counters["duration_ns"].isna().all():
        return None
    any_pct = _weighted(counters, counters[["memory_pct", "dram_pct"]].max(axis=1))
    sm_pct = _weighted(counters, counters["sm_pct"])
    if any_pct is None or sm_pct is None:
        return None
    levels = {"DRAM": _weighted(counters, counters["dram_pct"])}
    levels["L2"] = _weighted(counters, counters["l2_pct"])
    known = {name: pct for name, pct in levels.items() if pct is not None}
    memory_pct = max(known.values()) if levels["DRAM"] is not None else any_pct
    inside = f" ({', '.join(f'{name} {pct:.0f} %' for name, pct in known.items())})"
    evidence = (
        f"counters of {len(counters)} launches, weighed by time: SM {sm_pct:.0f} %, memory "
        f"{any_pct:.0f} % of peak{inside if known else ''}",
        *_coverage(view),
    )
    place = "in the profiled kernels"
    if memory_pct >= max(sm_pct, HIGH_PCT):
        kind, headline = (
            VerdictKind.MEMORY_BOUND,
            f"Memory-bound: memory at {memory_pct:.0f} % of peak",
        )
        steps = _STEPS[kind]
    elif sm_pct >= HIGH_PCT:
        kind, headline = (
            VerdictKind.COMPUTE_BOUND,
            f"Compute-bound: the SMs at {sm_pct:.0f} % of peak",
        )
        steps = _STEPS[kind]
    elif any_pct >= HIGH_PCT:
        kind = VerdictKind.MEMORY_BOUND
        headline = f"Bound by memory on the chip: L1 or shared memory at {any_pct:.0f} % of peak"
        steps = _ON_CHIP
    else:
        kind, steps = VerdictKind.UNKNOWN, _STARVED
        headline = (
            f"Neither memory ({memory_pct:.0f} %) nor SM ({sm_pct:.0f} %) is near its peak: "
            "latency or too little parallelism"
        )
    return RunVerdict(
        kind=kind, headline=f"{headline} {place}", evidence=evidence, next_steps=steps
    )


def _weighted(counters: pd.DataFrame, values: pd.Series) -> float | None:
    known = values.notna() & counters["duration_ns"].notna()
    weights = counters.loc[known, "duration_ns"]
    if not known.any() or weights.sum() <= 0:
        return None
    return float(np.average(values[known], weights=weights))


def _coverage(view: RunView) -> tuple[str, ...]:
    """Say what share of the kernel pass's GPU time has kernels of the profiled names."""
    total_ns = 0 if view.kernels.empty else int(view.kernels["total_ns"].sum())
    if not total_ns:
        return ()
    names = set(view.counters["short_name"])
    covered_ns = int(view.kernels.loc[view.kernels["short_name"].isin(names), "total_ns"].sum())
    return (f"kernels of these names are {percent(covered_ns / total_ns)} of the GPU time",)


def _from_cost(view: RunView) -> RunVerdict | None:
    median_ms = (view.summary.get("latency_ms") or {}).get("median")
    if not view.cost or not median_ms:
        return None
    used = utilisation(
        cost=view.cost,
        latency_ns=median_ms * 1e6,
        peaks=view.peaks,
        gpu_model=view.run.gpu_model,
    )
    shares = {
        VerdictKind.MEMORY_BOUND: (used.mbu, used.mbu_peak, "memory", "MBU"),
        VerdictKind.COMPUTE_BOUND: (used.mfu, used.mfu_peak, "arithmetic", "MFU"),
    }
    known = {k: v for k, v in shares.items() if v[0] is not None and v[1] is not None}
    if used.errors or not known:
        return None
    evidence = tuple(
        f"{label} {percent(share or 0)} of the {peak.source} peak"
        for share, peak, _, label in known.values()
        if peak is not None
    )
    kind = max(known, key=lambda k: known[k][0] or 0)
    share, _, noun, label = known[kind]
    if (share or 0) < HIGH_FRAC:
        return _far_from_peaks(view, f"{label} is only {percent(share or 0)}", evidence)
    word = "Memory-bound" if kind == VerdictKind.MEMORY_BOUND else "Compute-bound"
    return RunVerdict(
        kind=kind,
        headline=f"{word}: {percent(share or 0)} of the peak {noun} rate over a whole iteration",
        evidence=evidence,
        next_steps=_STEPS[kind],
    )


def _far_from_peaks(view: RunView, words: str, evidence: tuple[str, ...]) -> RunVerdict:
    """Say where the time of a busy GPU goes that is far from both peaks over an iteration."""
    gemm_frac = view.summary.get("gemm_frac")
    steps: tuple[str, ...] = _RECORD[:1]
    if gemm_frac is None:
        headline = f"Cannot tell from the cost model: {words}"
    elif gemm_frac < HIGH_FRAC:
        headline = (
            f"The GPU is busy, {percent(1 - gemm_frac)} of it outside matrix products; {words}"
        )
        steps = (_STEPS[VerdictKind.MEMORY_BOUND][0], _RECORD[0])
    else:
        headline = (
            f"The GPU is busy, {percent(gemm_frac)} of it in matrix products, and {words}: cannot "
            "tell why without counters"
        )
    return RunVerdict(
        kind=VerdictKind.UNKNOWN, headline=headline, evidence=evidence, next_steps=steps
    )


def _cannot_tell(view: RunView) -> RunVerdict:
    totals = fractions(view.kernels)["category_total_ns"]
    total_ns = sum(totals.values())
    known = {k: ns for k, ns in totals.items() if k != OPAQUE}
    top = max(known, key=lambda k: known[k]) if known else "unknown"
    share = percent(known.get(top, 0) / total_ns) if total_ns else "unknown"
    is_busy = view.summary.get("idle_frac") is not None
    lead = f"The GPU is busy, {share} of its time" if is_busy else f"{share} of the kernel time is"
    if top == Category.COLLECTIVE:
        has_all = len(view.ranks.get("ranks", ())) > 1 and not view.ranks.get("missing")
        why = "" if has_all else ", and one capture cannot tell which"
        return RunVerdict(
            kind=VerdictKind.UNKNOWN,
            headline=f"{lead} in collectives: they send, or wait for other ranks{why}",
            evidence=(f"kernel time {milliseconds(total_ns)}",),
            next_steps=(_SEE_RANKS if has_all else _IMPORT_RANKS,),
        )
    place = "kernels that no rule knows" if top == Category.UNKNOWN else top
    return RunVerdict(
        kind=VerdictKind.UNKNOWN,
        headline=f"{lead} in {place}; memory or arithmetic: cannot "
        "tell without counters or a cost model",
        evidence=(f"kernel time {milliseconds(total_ns)}",),
        next_steps=_RECORD,
    )


_SEE_RANKS = "See on the Ranks tab how much each rank waits, and in the timeline which comes last"
_IMPORT_RANKS = "Import the captures of all ranks as one run and see in the timeline which is late"
_CHECK = (
    "Check that the program uses the GPU, that nsys traces cuda, and that counters or tracing are "
    "permitted (WSL2 and some containers record API calls only)"
)
_GRAPH_NODES = (
    "Record again with --cuda-graph-trace=node and a newer Nsight Systems to see the kernels"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What the kernels' names show beside the limit, and its remedy."""

    found: str
    remedy: str


_MIN_REMARK_FRAC = 0.05
"""A smaller part of the kernel time is not worth a remark."""
_UNALIGNED = re.compile(r"tensorop_(?P<half>b?f16_)?s\d+.*_align(?P<elements>\d)(?!\d)")
"""A CUTLASS tensor-core kernel and how many elements of its operands it loads at once."""
_WITHOUT_TENSOR_CORES = re.compile(r"(?<![a-z])sgemm(?![a-z])|_ffma_")


def slow_products(kernels: pd.DataFrame) -> tuple[Remark, ...]:
    """Return what the names of matrix products show of avoidable slowness, from 5 % on.

    A tensor-core kernel that loads fewer than 16 bytes at once was chosen because a dimension or an
    address is not aligned (6.7 times the time of aligned ones: docs/results/unaligned-h200.txt); an
    `sgemm`, or cuBLAS' `ffma`, runs fp32 products without tensor cores.
    """
    total_ns = int(kernels["total_ns"].sum())
    products = kernels[kernels["category"].isin([Category.GEMM, Category.CONV])]
    names, times_ns = products["name"].astype(str), products["total_ns"]
    unaligned_ns = int(times_ns[names.map(_is_unaligned).astype(bool)].sum())
    fp32_ns = int(times_ns[names.str.contains(_WITHOUT_TENSOR_CORES)].sum())
    remarks = (
        (
            unaligned_ns,
            "of the kernel time is in matrix products with unaligned operands (align1 to align4)",
            "Pad the dimension that is no multiple of 8 (of 4 in tf32), such as a vocabulary of "
            "50257 to 50304: its products then load 16 bytes at once",
        ),
        (
            fp32_ns,
            "of the kernel time is in fp32 matrix products without tensor cores (sgemm, ffma)",
            'Allow tensor cores: torch.set_float32_matmul_precision("high") for tf32, or bf16',
        ),
    )
    return tuple(
        Remark(found=f"{percent(ns / total_ns)} {found}", remedy=remedy)
        for ns, found, remedy in remarks
        if total_ns and ns / total_ns >= _MIN_REMARK_FRAC
    )


def _is_unaligned(name: str) -> bool:
    found = _UNALIGNED.search(name)
    return found is not None and int(found["elements"]) < (8 if found["half"] else 4)


def nothing_recorded(view: RunView, *, is_cpu: bool) -> RunVerdict:
    """Return what a run without a kernel table holds instead, and what to record."""
    calls = int(view.api_calls["count"].sum()) if len(view.api_calls) else 0
    evidence = (f"{counted(calls, 'CUDA API call')} recorded, but no kernel",) if calls else ()
    graphs = int(view.summary.get("num_graph_launches") or 0)
    if view.primary_pass is None:
        headline = "Cannot tell what limits it: no profile was recorded"
        step = f"Run again with the {'trace' if is_cpu else 'nsys'} profiler"
    elif is_cpu:
        headline, step = "No operators recorded", "Check that the program runs PyTorch operators"
    elif graphs:
        headline = (
            f"{counted(graphs, 'CUDA graph launch')} left no GPU record: their time is unknown"
        )
        step = _GRAPH_NODES
    elif len(view.transfers):
        count, total_ns = (int(view.transfers[c].sum()) for c in ("count", "total_ns"))
        headline = f"No kernel was recorded, only copies and memory sets: {milliseconds(total_ns)}"
        evidence = (counted(count, "copy or memory set", "copies and memory sets"), *evidence)
        step = "Check that the program's kernels run while the profiler records"
    elif _are_left_out(view):
        headline = "Cannot tell what limits it: no recorded kernel has a time that can be"
        step = "Record again with a newer profiler; see the warnings for what was left out"
    elif _are_summaries(view):
        headline = "Cannot tell what limits it: the imported summary lists no kernels"
        step = "Import the SQLite export, or the kernel summary (cuda_gpu_kern_sum) too"
    else:
        headline, step = "No GPU activity recorded", _CHECK
    return RunVerdict(
        kind=VerdictKind.UNKNOWN, headline=headline, evidence=evidence, next_steps=(step,)
    )


def _are_left_out(view: RunView) -> bool:
    """True where a reader put kernels aside: there was GPU work."""
    return any(
        w.code == "quarantined_events" or (w.code == "quarantined_rows" and "_KERNEL" in w.message)
        for w in view.warnings
    )


def _are_summaries(view: RunView) -> bool:
    """True where the captures are reports of `nsys stats`, each of one kind of event."""
    kinds = set(view.captures["kind"]) if "kind" in view.captures else set()
    return kinds == {CaptureKind.NSYS_CSV}


def no_durations(*, is_cpu: bool) -> RunVerdict:
    """Return what is said where all kernels (or CPU operators) are recorded with 0 ns."""
    work = "operators" if is_cpu else "kernels"
    return RunVerdict(
        kind=VerdictKind.CPU if is_cpu else VerdictKind.UNKNOWN,
        headline=f"Cannot tell what limits it: all recorded {work} have a duration of 0",
        evidence=(),
        next_steps=("Record again with a newer profiler, or a part that does more work",),
    )

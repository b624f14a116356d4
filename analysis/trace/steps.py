"""The steps of a capture: what each launched and cost, which count, and the medians of those.

`find_steps` cuts every process's launch sequence by the best evidence (`step_evidence`), measures
each step and says which are left out of the averages and why: start-up before the first step is in
none; a step that launches something else, sets up its state, tunes, allocates or was held up is
shown and not counted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import merge, overlap_ns, union_of_each_ns
from analysis.tables import STEP_COLUMNS
from analysis.trace.blocks import Block
from analysis.trace.launches import LaunchSequence, launch_sequence
from analysis.trace.model import MISSING, Bools, Int64s, OpKind, Trace
from analysis.trace.repetition import MicroSteps
from analysis.trace.step_evidence import StepCuts, StepSource, find_cuts
from analysis.trace.thread_loops import only, own_loops
from analysis.trace.turns import MIN_ALIKE, NUM_BUCKETS

MAX_SLOW = 1.5
"""A step that takes this many times the median, and stands out of the spread, is an outlier."""
MAX_HELD_UP = 0.2
"""Share of the steps that can be outliers: where more wait (for their data), waiting is usual."""
MAX_WARM_UP = 64
MIN_STEPS_TO_JUDGE = 4
MIN_ON_MAIN = 0.9
"""Share of the steps that run something on the stream with most operations, to start there."""
_NEVER = np.iinfo(np.int64).max
MAX_KINDS = 8
NO_STEPS = {
    "no_work": "no GPU work was recorded",
    "none": "nothing in the launch sequence repeats often enough, and no range is numbered",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLoop:
    """Steps of another thread or process, on the GPU of those that the medians are of."""

    whose: str
    "`thread 71 (loader)`, `process 4012`."
    count: int
    num_kernels: float | None
    "Median of the regular steps, as the other figures; None where graphs were recorded whole."
    gpu_ns: float
    "Of its kernels and graphs."
    period_ns: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a capture. Without any, `frame` is empty and `reason` says why."""

    frame: pd.DataFrame
    "STEP_COLUMNS, by process and time."
    source: StepSource | None
    evidence: str
    block: Block | None
    micro: MicroSteps | None
    confidence: float
    reason: str | None
    process: int
    "The process whose steps the medians are of: the one with the most GPU time."
    threads: Bools
    "The threads that run them, by row of `Sources.threads`, and last an unknown one."
    device: int
    "The GPU with most of their work."
    others: tuple["OtherLoop", ...] = ()
    "What else ran on the GPU with the most work in steps of its own."
    op_step: Int64s
    "For each row of `Trace.gpu_ops` the row of `frame`; MISSING outside all steps."


def find_steps(trace: Trace) -> Steps:
    """Return the steps of every process of a capture."""
    found: list[_Found] = []
    apart: list[int] = []
    for process in _processes(trace):
        loops = own_loops(trace, process)
        steps = _found(trace, process, ~only(trace, loops))
        if steps is None or (found and steps.cuts.source is not found[0].cuts.source):
            continue
        apart = apart if found else loops
        found.append(steps)
    op_step = np.full(len(trace.gpu_ops), MISSING, np.int64)
    if not found:
        reason = NO_STEPS["none" if len(trace.gpu_ops) else "no_work"]
        return _without(trace, op_step, reason)
    num = 0
    for steps in found:
        op_step[steps.sequence.ops] = np.where(steps.of_op >= 0, steps.of_op + num, MISSING)
        num += len(steps.frame)
    leading = found[0]
    of_threads = [_found(trace, leading.process, only(trace, [thread])) for thread in apart]
    return Steps(
        frame=pd.concat([steps.frame for steps in found], ignore_index=True),
        source=leading.cuts.source,
        evidence=leading.cuts.evidence,
        block=leading.cuts.block,
        micro=leading.cuts.micro,
        confidence=leading.cuts.confidence,
        reason=None,
        process=MISSING if leading.process is None else leading.process,
        threads=leading.threads,
        device=leading.device,
        others=tuple(
            _other_loop(trace, steps, leading.process)
            for steps in (*of_threads, *found[1:])
            if steps is not None and steps.device == leading.device
        ),
        op_step=op_step,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The steps of some threads of a process."""

    process: int | None
    threads: Bools
    device: int
    "The GPU with most of the process's work."
    sequence: LaunchSequence
    cuts: StepCuts
    frame: pd.DataFrame
    of_op: Int64s
    "The step of each of the sequence's operations; MISSING outside."


def _found(trace: Trace, process: int | None, threads: Bools) -> _Found | None:
    sequence = launch_sequence(trace, process, None if threads.all() else threads)
    ranges = trace.host_ranges
    is_own = threads[ranges.thread]
    if process is not None:
        is_own &= trace.thread_process()[ranges.thread] == process
    cuts = find_cuts(trace, sequence, np.flatnonzero(is_own))
    if cuts is None or not len(cuts.first):
        return None
    device = _busiest_device(trace, sequence.ops)
    frame, of_op = _measured(trace, sequence, cuts, process, threads, device)
    return _Found(
        process=process,
        threads=threads,
        device=device,
        sequence=sequence,
        cuts=cuts,
        frame=frame,
        of_op=of_op,
    )


def _other_loop(trace: Trace, steps: _Found, leading: int | None) -> OtherLoop:
    sources, process = trace.sources, steps.process
    whose = "" if process is None else f"process {sources.processes[process].pid}"
    if process == leading:
        whose = f"thread {sources.threads[int(np.flatnonzero(steps.threads)[0])].tid}"
    figures = medians(steps.frame[steps.frame["is_regular"]])
    return OtherLoop(
        whose=whose,
        count=len(steps.frame),
        num_kernels=figures.get("num_kernels"),
        gpu_ns=figures.get("kernel_ns", 0) + figures.get("graph_ns", 0),
        period_ns=figures.get("period_ns"),
    )


def steps_document(steps: Steps) -> dict[str, Any]:
    """Return the `steps` of `show --json`; only `reason` where there are none."""
    if steps.source is None:
        return {"reason": steps.reason}
    own = steps.frame[steps.frame["process"] == steps.process]
    regular = own[own["is_regular"]]
    excluded = own.loc[~own["is_regular"], "reason"]
    block = steps.block and {"num_kernels": steps.block.num_kernels, "count": steps.block.count}
    return {
        "source": str(steps.source),
        "evidence": steps.evidence,
        "count": len(own),
        "num_excluded": len(excluded),
        "excluded": _reasons(excluded),
        **medians(regular),
        "block": block,
        "micro_steps": steps.micro.count if steps.micro else None,
        "kinds": _kinds(own),
        "other_loops": [
            {name: value for name, value in asdict(loop).items() if value is not None}
            for loop in steps.others
        ],
        "confidence": steps.confidence,
    }


def medians(regular: pd.DataFrame) -> dict[str, float]:
    """Return the median of each figure over some steps; unknown ones are absent."""
    of_name: dict[str, float] = {}
    figures = {name: regular[name].to_numpy(np.float64, na_value=np.nan) for name in _FIGURES}
    has_kernels = bool((figures["num_kernels"] > 0).any())
    for name in _FIGURES:
        values = figures[name][~np.isnan(figures[name])]
        if len(values) and (has_kernels or name not in ("num_kernels", "kernel_ns")):
            of_name[name] = float(np.median(values))
    period = figures["period_ns"]
    if (~np.isnan(period)).any():
        with np.errstate(divide="ignore", invalid="ignore"):
            idle = np.maximum(1 - figures["busy_ns"] / period, 0)
        of_name["idle_frac"] = float(np.nanmedian(idle))
    whole = {k: int(v) for k, v in of_name.items() if k != "idle_frac" and v == int(v)}
    return of_name | whole


_FIGURES = (
    "num_kernels",
    "num_launches",
    "num_graph_launches",
    "kernel_ns",
    "graph_ns",
    "busy_ns",
    "period_ns",
    "num_transfers",
    "transfer_bytes",
    "transfer_ns",
    "num_allocations",
    "allocated_bytes",
    "num_api_calls",
    "api_ns",
)


def _processes(trace: Trace) -> list[int | None]:
    """Return the processes with GPU work, the one with the most GPU time first."""
    ops = trace.gpu_ops
    if not len(ops):
        return []
    duration = (ops.end_ns - ops.start_ns).astype(float)
    known = ops.process >= 0
    if not known.all():
        return [None]
    total = np.bincount(ops.process, duration)
    return [int(p) for p in np.argsort(-total, kind="stable") if total[p] > 0]


def _without(trace: Trace, op_step: Int64s, reason: str) -> Steps:
    return Steps(
        frame=pd.DataFrame({name: [] for name in STEP_COLUMNS}),
        source=None,
        evidence="",
        block=None,
        micro=None,
        confidence=0.0,
        reason=reason,
        process=MISSING,
        threads=~only(trace, []),
        device=_busiest_device(trace, np.arange(len(trace.gpu_ops))),
        op_step=op_step,
    )


def _measured(
    trace: Trace,
    sequence: LaunchSequence,
    cuts: StepCuts,
    process: int | None,
    threads: Bools,
    device: int,
) -> tuple[pd.DataFrame, Int64s]:
    """Return the steps of a process with their figures, and the step of each of its operations."""
    num = len(cuts.first)
    entry_step = np.full(len(sequence), MISSING, np.int64)
    for step, (first, last) in enumerate(zip(cuts.first.tolist(), cuts.last.tolist(), strict=True)):
        entry_step[first:last] = step
    of_op = entry_step[sequence.op_entry]
    inside = of_op >= 0
    figures = _figures(trace, sequence.ops[inside], of_op[inside], num, device)
    period = _periods(figures, cuts)
    figures["busy_ns"] += _busy_beside(trace, sequence, figures, period, device)
    kind = _kinds_of(sequence, entry_step, num, cuts.once)
    does_work = sequence.num_ops > 0
    launches = (entry_step >= 0) & does_work & ~_only_transfers(trace, sequence)
    frame = pd.DataFrame(
        {
            "process": MISSING if process is None else process,
            "step": np.arange(num),
            "start_ns": cuts.start_ns,
            "end_ns": cuts.end_ns,
            **figures,
            "num_launches": np.bincount(entry_step[launches], minlength=num),
            **_host_figures(trace, cuts, process, threads),
            "period_ns": period,
            "kind": kind,
        }
    )
    frame["reason"] = _exclusions(frame, sequence, cuts, kind)
    frame["is_regular"] = frame["reason"].isna()
    return frame[list(STEP_COLUMNS)], of_op


def _only_transfers(trace: Trace, sequence: LaunchSequence) -> Bools:
    """Tell which entries start copies and memory sets only."""
    is_work = np.isin(trace.gpu_ops.kind[sequence.ops], (OpKind.KERNEL, OpKind.GRAPH))
    works = np.zeros(len(sequence), bool)
    works[sequence.op_entry[is_work]] = True
    return ~works


def _figures(trace: Trace, rows: Int64s, step: Int64s, num: int, device: int) -> dict[str, Any]:
    """Return what the operations of each step add up to; `device` is the leading GPU."""
    ops = trace.gpu_ops
    kind, duration = ops.kind[rows], ops.end_ns[rows] - ops.start_ns[rows]

    def total(chosen: Bools, values: Int64s | None = None) -> Int64s:
        sums = np.zeros(num, np.int64)
        np.add.at(sums, step[chosen], 1 if values is None else values[chosen])
        return sums

    is_kernel, is_graph = kind == OpKind.KERNEL, kind == OpKind.GRAPH
    is_transfer = ~(is_kernel | is_graph)
    last = np.full(num, np.iinfo(np.int64).min)
    np.maximum.at(last, step, ops.end_ns[rows])
    first = _starts(trace, rows, step, num)
    empty = first > last
    on_main = _is_on_main_stream(trace, rows, device)
    begins = _starts(trace, rows[on_main], step[on_main], num)
    if (begins < _NEVER).sum() >= MIN_ON_MAIN * (~empty).sum():
        first = np.where(begins < _NEVER, begins, first)
    works = is_kernel | is_graph
    return {
        "gpu_start_ns": pd.arrays.IntegerArray(np.where(empty, 0, first), empty),
        "gpu_end_ns": pd.arrays.IntegerArray(np.where(empty, 0, last), empty.copy()),
        "num_kernels": total(is_kernel),
        "num_graph_launches": total(is_graph),
        "kernel_ns": total(is_kernel, duration),
        "graph_ns": total(is_graph, duration),
        "busy_ns": _busy(trace, rows[works], step[works], num, device),
        "num_transfers": total(is_transfer),
        "transfer_bytes": total(is_transfer, np.maximum(ops.num_bytes[rows], 0)),
        "transfer_ns": total(is_transfer, duration),
    }


def _starts(trace: Trace, rows: Int64s, step: Int64s, num: int) -> Int64s:
    """Return the first start of each step's operations; _NEVER without any."""
    first = np.full(num, _NEVER)
    np.minimum.at(first, step, trace.gpu_ops.start_ns[rows])
    return first


def _is_on_main_stream(trace: Trace, rows: Int64s, device: int) -> Bools:
    """Tell which operations are on the stream with most of the operations of a GPU."""
    ops = trace.gpu_ops
    is_here = ops.device[rows] == device
    streams, of_stream = np.unique(ops.stream[rows], return_inverse=True)
    count = np.bincount(of_stream[is_here], minlength=len(streams))
    return np.asarray(is_here & (of_stream == int(np.argmax(count))))


def _busy_beside(
    trace: Trace,
    sequence: LaunchSequence,
    figures: Mapping[str, Any],
    period_ns: pd.arrays.IntegerArray,
    device: int,
) -> Int64s:
    """Return how long the GPU ran, in each step, only what other threads and processes launched."""
    ops = trace.gpu_ops
    is_other = np.isin(ops.kind, (OpKind.KERNEL, OpKind.GRAPH)) & (ops.device == device)
    own = sequence.ops[is_other[sequence.ops]]
    is_other[own] = False
    start = figures["gpu_start_ns"].to_numpy(np.int64, na_value=0)
    length = period_ns.to_numpy(np.int64, na_value=0)
    if not is_other.any():
        return np.zeros(len(start), np.int64)
    spans = merge(ops.start_ns[own], ops.end_ns[own])
    both = np.append(own, np.flatnonzero(is_other))
    covered = overlap_ns(*merge(ops.start_ns[both], ops.end_ns[both]), start, start + length)
    return covered - overlap_ns(*spans, start, start + length)


def _busy(trace: Trace, rows: Int64s, step: Int64s, num: int, device: int) -> Int64s:
    """Return the union of the operations of each step on the leading GPU.

    A step takes as long as it takes, on however many GPUs: busy time summed over them is no part
    of it.
    """
    ops = trace.gpu_ops
    chosen = ops.device[rows] == device
    own = rows[chosen]
    return union_of_each_ns(step[chosen], ops.start_ns[own], ops.end_ns[own], num)


def _busiest_device(trace: Trace, rows: Int64s) -> int:
    ops = trace.gpu_ops
    duration = (ops.end_ns[rows] - ops.start_ns[rows]).astype(float)
    return int(np.argmax(np.bincount(np.maximum(ops.device[rows], 0), duration, minlength=1)))


def _host_figures(
    trace: Trace, cuts: StepCuts, process: int | None, threads: Bools
) -> dict[str, Any]:
    """Return allocations and API calls of each step; missing where none were recorded at all."""
    calls, allocations = trace.host_calls, trace.allocations
    own_calls = threads[calls.thread]
    if process is not None:
        own_calls &= trace.thread_process()[calls.thread] == process
    grows = allocations.num_bytes > 0
    own = grows if process is None else grows & (allocations.process == process)
    call_ns = calls.end_ns - calls.start_ns
    return {
        **_within(cuts, calls.start_ns[own_calls], call_ns[own_calls], "num_api_calls", "api_ns"),
        **_within(
            cuts,
            allocations.time_ns[own],
            allocations.num_bytes[own],
            "num_allocations",
            "allocated_bytes",
        ),
    }


def _within(
    cuts: StepCuts, time_ns: Int64s, values: Int64s, count: str, total: str
) -> dict[str, Any]:
    num = len(cuts.first)
    if not len(time_ns):
        nothing = pd.arrays.IntegerArray(np.zeros(num, np.int64), np.ones(num, bool))
        return {count: nothing, total: nothing.copy()}
    done = np.append(0, np.cumsum(values))
    first = np.searchsorted(time_ns, cuts.start_ns)
    last = np.maximum(np.searchsorted(time_ns, cuts.end_ns), first)
    known = np.zeros(num, bool)
    return {
        count: pd.arrays.IntegerArray(last - first, known),
        total: pd.arrays.IntegerArray(done[last] - done[first], known.copy()),
    }


def _periods(figures: Mapping[str, Any], cuts: StepCuts) -> pd.arrays.IntegerArray:
    """Return the time from each step's start on the GPU to the next one's.

    A step starts on the stream with most operations: what others run may be far ahead of it.
    Only where the next step follows at once; else its own range on the host, or its time on the GPU
    where that is longer, and nothing for steps that no range marks.
    """
    start, end = (figures[n].to_numpy(np.int64, na_value=0) for n in ("gpu_start_ns", "gpu_end_ns"))
    works = ~figures["gpu_start_ns"].isna()
    period, known = np.zeros(len(start), np.int64), np.zeros(len(start), bool)
    period[:-1] = start[1:] - start[:-1]
    known[:-1] = (cuts.last[:-1] == cuts.first[1:]) & works[1:] & works[:-1]
    if cuts.source in (StepSource.RANGES, StepSource.PROFILER_STEP):
        # A range that only hands over its work ends before the GPU does.
        own = np.maximum(cuts.end_ns - cuts.start_ns, end - start)
        period, known = np.where(known, period, own), np.ones(len(start), bool)
    elif len(start) == 1:
        period, known = end - start, works
    known &= period > 0
    return pd.arrays.IntegerArray(np.where(known, period, 0), ~known)


def _kinds_of(
    sequence: LaunchSequence, entry_step: Int64s, num: int, once: Int64s | None
) -> NDArray[np.int64]:
    """Return the kind of each step: 0 the most frequent, then the other recurring ones.

    Steps without GPU work are the usual ones only where there are no others. `once`: as in
    `StepCuts`.
    """
    inside = (entry_step >= 0) & (sequence.num_ops > 0)
    code = sequence.code if once is None else once
    key = entry_step[inside] * NUM_BUCKETS + code[inside] % NUM_BUCKETS
    content = np.bincount(key, minlength=num * NUM_BUCKETS).reshape(num, NUM_BUCKETS).astype(float)
    if once is not None:
        content = np.minimum(content, 1)
    size = content.sum(axis=1)
    kind = np.full(num, MISSING, np.int64)
    for number in range(MAX_KINDS):
        left = np.flatnonzero((kind < 0) & (size > 0))
        if not len(left):
            break
        usual = _commonest(content[left])
        total = np.maximum(size[left] + usual.sum(), 1)
        apart = np.abs(content[left] - usual).sum(axis=1)
        kind[left[1 - apart / total >= MIN_ALIKE]] = number
    kind[kind < 0] = MAX_KINDS
    return kind


def _commonest(content: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.random.default_rng(5).integers(1, 1 << 40, NUM_BUCKETS)
    digest = content.astype(np.int64) @ weights
    _, row, count = np.unique(digest, return_index=True, return_counts=True)
    if count.max() > 1 or len(content) < 3:
        return np.asarray(content[row[np.argmax(count)]])
    # No two are equal: the one that is nearest to the middle of all.
    middle = np.median(content, axis=0)
    return np.asarray(content[np.argmin(np.abs(content - middle).sum(axis=1))])


def _exclusions(
    frame: pd.DataFrame,
    sequence: LaunchSequence,
    cuts: StepCuts,
    kind: NDArray[np.int64],
) -> pd.Series:
    """Return why each step is left out of the averages; None where it counts."""
    size = (frame["num_kernels"] + frame["num_graph_launches"]).to_numpy()
    transfers = frame["num_transfers"].to_numpy()
    typical = float(np.median(size[kind == 0])) if (kind == 0).any() else 0.0
    tuned = np.append(0, np.cumsum(sequence.is_autotuning))
    tunes = tuned[cuts.last] > tuned[cuts.first]
    count = np.bincount(kind)
    reasons: list[str | None] = [None] * len(frame)
    for i in np.flatnonzero((kind != 0) | tunes | (size + transfers == 0)).tolist():
        differs = f"({size[i]} kernels, usual {typical:.0f})"
        if size[i] == typical:
            differs = "(as many kernels, of other names)"
        if not size[i] and not transfers[i]:
            reasons[i] = "no GPU work"
        elif tunes[i]:
            reasons[i] = "autotuning"
        elif count[kind[i]] > 1:
            reasons[i] = f"another kind of step {differs}"
        else:
            reasons[i] = f"{'' if i else 'warm-up: '}other launches {differs}"
    _mark_slow(frame, reasons)
    return pd.Series(reasons, index=frame.index, dtype=object)


def _mark_slow(frame: pd.DataFrame, reasons: list[str | None]) -> None:
    """Give a reason to steps that took much longer than the others."""
    period = frame["period_ns"].astype(float).to_numpy()
    counted = np.array([r is None for r in reasons]) & ~np.isnan(period)
    if counted.sum() < MIN_STEPS_TO_JUDGE:
        return
    middle = float(np.median(period[counted]))
    spread = float(np.median(np.abs(period[counted] - middle)))
    limit = max(MAX_SLOW * middle, middle + 5 * spread)
    allocated = frame["num_allocations"].fillna(0).to_numpy()
    is_rare = np.median(allocated) == 0
    warm_up = _warm_up(period, counted)
    held_up = counted & ~warm_up & (period > limit)
    if held_up.sum() > MAX_HELD_UP * counted.sum():
        held_up[:] = False
    slow = held_up | warm_up
    usual = float(np.median(period[counted & ~slow]))
    for i in np.flatnonzero(slow).tolist():
        when = "warm-up" if warm_up[i] else "outlier"
        reason = ", allocates memory" if is_rare and allocated[i] else ""
        reasons[i] = f"{when}: took {period[i] / usual:.1f} times the median{reason}"


def _warm_up(period: NDArray[np.float64], counted: Bools) -> Bools:
    """Tell which steps at the start are all slower than those after them by far."""
    rows = np.flatnonzero(counted)
    is_warm_up = np.zeros(len(period), bool)
    for num in range(1, min(len(rows) // 2, MAX_WARM_UP) + 1):
        later = float(np.median(period[rows[num:]]))
        if (period[rows[:num]] > MAX_SLOW * later).all():
            is_warm_up[rows[:num]] = True
    return is_warm_up


def _reasons(excluded: pd.Series) -> list[dict[str, Any]]:
    counts = excluded.value_counts(sort=False)
    return [{"reason": str(r), "count": int(n)} for r, n in counts.items()]


def _kinds(own: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the kinds of steps that recur, most frequent first; [] where there is one."""
    groups = [(int(k), rows) for k, rows in own.groupby("kind") if len(rows) > 1]
    if len(groups) < 2:
        return []
    groups.sort(key=lambda item: -len(item[1]))
    names = _kind_names(own, [k for k, _ in groups])
    return [{"name": names[k], "count": len(rows), **medians(_calm(rows))} for k, rows in groups]


def _calm(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of one kind without those that were held up, if that leaves any."""
    own = rows[rows["is_regular"].astype(bool)]
    return own if len(own) else rows


def _kind_names(own: pd.DataFrame, kinds: list[int]) -> Mapping[int, str]:
    """Name prefill and decode: a rarer, longer kind before each run of the usual one."""
    names = {k: f"kind {i + 1}" for i, k in enumerate(kinds)}
    usual, other = kinds[0], kinds[1]
    sequence = own.loc[own["kind"].isin(kinds[:2]), "kind"].to_numpy()
    is_other = sequence == other
    cost = own["kernel_ns"] + own["graph_ns"]
    longer = cost[own["kind"] == other].median() > cost[own["kind"] == usual].median()
    alone = not (is_other[1:] & is_other[:-1]).any()
    if len(kinds) == 2 and is_other[0] and longer and alone and is_other.mean() < 0.5:
        names[usual], names[other] = "decode", "prefill"
    return names

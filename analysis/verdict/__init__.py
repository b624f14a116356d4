"""What limits a run: one answer, its evidence, and what to do next.

The order of the questions: did it end (out of memory), is it a CPU run, is there GPU work at all,
are its kernels recorded (opaque graphs), does the GPU wait (and for what), and only for a busy GPU:
memory or arithmetic. Where the captures cannot tell, the verdict says so and what to record.
"""

from dataclasses import replace

from analysis.classify import fractions
from analysis.idle import Idle, idle_of_run, median_gap_ns
from analysis.latency import why_no_clean
from analysis.runview import RunView
from analysis.tables import CPU_OPERATORS
from analysis.trace.idle_host import GROUPS, host_share
from analysis.verdict.facts import (
    RunVerdict,
    VerdictKind,
    byte_size,
    counted,
    graphs_not_used,
    idle_causes,
    launches_per_iteration,
    milliseconds,
    percent,
)
from analysis.verdict.limits import (
    busy_limit,
    limit_without_kernels,
    no_durations,
    nothing_recorded,
    slow_products,
)
from analysis.verdict.ranks import filled_by_compute, rank_limit
from core.states import Pass

__all__ = [
    "RunVerdict",
    "VerdictKind",
    "graphs_not_used",
    "idle_basis",
    "is_cpu_run",
    "run_verdict",
]

_LONG_GAP_NS = 1e6
"""From here on a gap is said in ms."""
OPAQUE_FRAC = 0.5
"""From this share of opaque graph time on, nothing is said about kernels."""


_IDLE_WORDS = {
    "launch": (VerdictKind.LAUNCH_BOUND, "Launch-bound"),
    "host": (VerdictKind.HOST_BOUND, "Host-bound"),
    "synchronisation": (VerdictKind.SYNC_BOUND, "Synchronisation-bound"),
    "transfer": (VerdictKind.TRANSFER_BOUND, "Transfer-bound"),
}
_IDLE_STEPS = {
    "launch": "Launch less: CUDA graphs (compile=reduce-overhead), fusion (torch.compile), or more "
    "work a launch (a larger batch)",
    "host": "See in the timeline what the program does between CUDA calls: data loading, Python, "
    "allocation, module loading or compilation inside the measured part",
    "synchronisation": "Remove waits inside the iteration: .item(), .cpu(), printing a tensor, "
    "torch.cuda.synchronize",
    "transfer": "Overlap copies with kernels: pinned memory, non_blocking=True, a stream of their "
    "own; or keep the data on the GPU",
}
_HOST_STEPS = {
    "data_loader": "Have the next batch ready: more loader workers, prefetching, pinned memory, "
    "less work a sample on the host",
    "optimizer": "Launch the optimizer's step at once: fused=True or foreach=True, or compile it",
    "allocation": "Keep memory instead of asking the driver for it in each step: PyTorch's caching "
    "allocator without empty_cache(), buffers made once",
}
"""What the host was at in most of the idle time -> its remedy."""

_UNKNOWN_STEPS = {
    True: "Record CUDA API calls too: nsys profile --trace=cuda,nvtx",
    False: "See in the timeline what the kernels wait for that were launched in time: another "
    "stream, another rank, or the start of each kernel (CUDA graphs)",
}


def run_verdict(view: RunView) -> RunVerdict:
    """Return what limits the run. Reads the span files for the median gap, else only `view`."""
    if view.run.status == "oom" or view.run.oom:
        return _oom(view)
    if view.kernels.empty:
        return limit_without_kernels(view) or nothing_recorded(view, is_cpu=is_cpu_run(view))
    is_cpu = _is_cpu_work(view)
    total_ns = int(view.kernels["total_ns"].sum())
    if total_ns <= 0:
        return no_durations(is_cpu=is_cpu)
    if is_cpu:
        return _cpu(view)
    opaque_ns = int(view.summary.get("opaque_graph_ns") or 0)
    if opaque_ns / total_ns >= OPAQUE_FRAC:
        return _opaque(view, opaque_ns / total_ns)
    if limit := rank_limit(view):
        return replace(limit, bar=_bar(view))
    idle = idle_of_run(view)
    if idle is None or idle.waits is False:
        return _busy(view, idle)
    return _idle(view, idle) if idle.waits else _between(view, idle)


def is_cpu_run(view: RunView) -> bool:
    """Say whether the run was on a CPU: asked for one, or its trace holds CPU operators alone."""
    return (view.run.gpu_model or "").lower() == "cpu" or _is_cpu_work(view)


def _is_cpu_work(view: RunView) -> bool:
    """True where the kernels are the CPU operators of a trace: no capture has a GPU operation."""
    is_told = any(w.code == CPU_OPERATORS for w in view.warnings)
    return is_told and view.primary_pass == Pass.TRACE and not view.span_paths


def _bar(view: RunView) -> tuple[tuple[str, int], ...]:
    """Return kernel time by category and the idle time that goes with it, in ns of the capture.

    Of a regular step where the idle share is that of the steps.

    Where the clean pass says how much the GPU waits, the idle part is drawn to that share; its
    causes are known of the profiled pass only. Kernels that ran at the same time share the time in
    which any of them ran, so that the whole is the time that passed.
    """
    idle = idle_of_run(view)
    kernels = view.by_step.kernels if idle is not None and idle.is_of_steps else view.kernels
    classes = fractions(kernels)["category_total_ns"]
    kernel_ns = sum(classes.values())
    if idle is not None and idle.is_clean:
        wait_ns = round(kernel_ns * idle.frac / (1 - idle.frac)) if idle.frac < 1 else 0
        return (*classes.items(), *([("idle", wait_ns)] if wait_ns else []))
    causes = [(f"idle: {cause}", ns) for cause, ns in idle_causes(view).items()]
    span_ns, busy_ns = view.summary.get("span_ns"), view.summary.get("busy_ns")
    if idle is not None and idle.is_of_steps:
        span_ns, busy_ns = (view.by_step.facts.get(k) for k in ("period_ns", "busy_ns"))
    if not causes and span_ns is not None and busy_ns is not None and span_ns > busy_ns:
        causes = [("idle", int(span_ns - busy_ns))]
    if busy_ns is not None and 0 < busy_ns < kernel_ns:
        classes = {name: round(ns * busy_ns / kernel_ns) for name, ns in classes.items()}
    return (*classes.items(), *causes)


def _oom(view: RunView) -> RunVerdict:
    oom = view.run.oom or {}
    phase = f" in {oom['phase']}" if oom.get("phase") else ""
    evidence = []
    for key, words in (
        ("requested_bytes", "asked for"),
        ("peak_bytes", "peak before it"),
        ("allocated_bytes", "allocated then"),
        ("device_free_bytes", "free on the device"),
        ("limit_bytes", "limit"),
    ):
        if oom.get(key) is not None:
            evidence.append(f"{words} {byte_size(oom[key])}")
    is_recorded = not view.memory_at_peak.empty
    seen = ("See what lived at the peak on the Memory tab",) if is_recorded else ()
    return RunVerdict(
        kind=VerdictKind.OOM,
        headline=f"Out of memory{phase}: a result, there is no latency",
        evidence=tuple(evidence),
        next_steps=(*seen, "A smaller batch or sequence, bf16, or recomputing activations"),
    )


def _cpu(view: RunView) -> RunVerdict:
    top = view.kernels.groupby("name")["total_ns"].sum().sort_values(ascending=False)
    total_ns = int(top.sum())
    short = dict(zip(view.kernels["name"], view.kernels["short_name"], strict=True))
    shares = [f"{short[name]} {percent(ns / total_ns)}" for name, ns in top.head(3).items()]
    longest = short[top.index[0]]
    return RunVerdict(
        kind=VerdictKind.CPU,
        headline=f"CPU run: {milliseconds(total_ns)} of operator time, most in {longest}",
        evidence=(f"self time: {', '.join(shares)}",),
        next_steps=("Run it on a GPU to see what limits it there",),
        bar=_bar(view),
    )


def _opaque(view: RunView, opaque_frac: float) -> RunVerdict:
    count = view.summary.get("num_graph_launches")
    launches = counted(count, "whole CUDA graph launch") if count else "whole CUDA graph launches"
    return RunVerdict(
        kind=VerdictKind.OPAQUE,
        headline=f"Opaque: {percent(opaque_frac)} of the GPU time is {launches}, "
        "their kernels were not recorded",
        evidence=_idle_evidence(view),
        next_steps=("Record again with --cuda-graph-trace=node to see the kernels",),
        bar=_bar(view),
    )


def _idle(view: RunView, idle: Idle) -> RunVerdict:
    causes = idle_causes(view)
    known = {cause: ns for cause, ns in causes.items() if cause in _IDLE_WORDS}
    idles = f"the GPU idles {percent(idle.frac)}{_of_what(view, idle)}"
    if sum(known.values()) * 2 < sum(causes.values()) or not known:
        return RunVerdict(
            kind=VerdictKind.UNKNOWN,
            headline=f"Cannot tell what limits it: {idles}, and the capture does not say why",
            evidence=_idle_evidence(view),
            next_steps=(_UNKNOWN_STEPS[view.api_calls.empty],),
            bar=_bar(view),
        )
    host = _most_of_host(view)
    cause = "host" if host else max(known, key=lambda c: known[c])
    kind, word = _IDLE_WORDS[cause]
    launches = launches_per_iteration(view)
    tail = f", {launches}" if launches and cause == "launch" else ""
    tail = f", most of it in {GROUPS[host]}" if host else tail
    skipped = graphs_not_used(view)
    steps = _idle_steps(view, cause, is_skipped=skipped is not None)
    return RunVerdict(
        kind=kind,
        headline=f"{word}: {idles}{tail}",
        evidence=((skipped,) if skipped else ()) + _idle_evidence(view),
        next_steps=(_HOST_STEPS[host], *steps[:-1]) if host else steps,
        bar=_bar(view),
    )


def _most_of_host(view: RunView) -> str | None:
    """Return what the host did in most of the idle time, where that has a remedy of its own."""
    rows = view.by_step.idle_host
    if rows.empty:
        return None
    spent = rows.groupby("group")["idle_ns"].sum()
    most = str(spent.idxmax())
    return most if most in _HOST_STEPS and 2 * spent[most] >= spent.sum() else None


def _idle_steps(view: RunView, cause: str, *, is_skipped: bool) -> tuple[str, ...]:
    steps: tuple[str, ...] = (_IDLE_STEPS[cause],)
    if cause == "launch" and view.summary.get("num_graph_launches"):
        steps = ("CUDA graphs are launched already: more work a replay (a larger batch, several "
                 "steps in one graph), and no wait for the host between two of them",)  # fmt: skip
    if is_skipped:
        steps = ("Find why CUDA graphs were skipped (TORCH_LOGS=perf_hints): often an input "
                 "mutated in place, such as a KV cache", *steps)  # fmt: skip
    return steps


def _between(view: RunView, idle: Idle) -> RunVerdict:
    """Return the verdict when the bounds of the idle share straddle the waiting limit."""
    return RunVerdict(
        kind=VerdictKind.UNKNOWN,
        headline=f"Cannot tell what limits it: the GPU idles between {percent(idle.low)} and "
        f"{percent(idle.high)}{_of_what(view, idle)}",
        evidence=_idle_evidence(view),
        next_steps=(
            "Profile the iteration that the clean pass measures: the same shapes, the same "
            "compilation, one stream",
        ),
        bar=_bar(view),
    )


def _of_what(view: RunView, idle: Idle) -> str:
    """Return what an idle share is a share of: the clean iteration, or the profiled span."""
    if idle.is_clean:
        return f" of an iteration of {milliseconds(view.summary['latency_ms']['median'] * 1e6)}"
    if idle.is_of_steps:
        period_ns = view.by_step.facts["period_ns"]
        return f" of a step of {milliseconds(period_ns)} under the profiler"
    span_ns = view.summary.get("span_ns")
    return f" of {milliseconds(span_ns)} under the profiler" if span_ns else ""


def idle_basis(view: RunView) -> str | None:
    """Return one line on where the idle share comes from and what the profiler saw; None if none.

    `clean pass: 4.40 ms of kernels in an iteration of 4.76 ms; 61 % idle under nsys`
    """
    idle = idle_of_run(view)
    if idle is None:
        return None
    tool = view.primary_pass or "the profiler"
    if idle.is_of_steps:
        facts = view.by_step.facts
        regular = facts["count"] - facts["num_excluded"]
        return (
            f"median of {counted(regular, 'step')} found by {facts['evidence']}, as {tool} saw "
            f"them; the whole capture idles {percent(idle.profiled_frac or 0)}, start-up included"
        )
    if not idle.is_clean:
        why = why_no_clean(w.code for w in view.warnings)
        return f"idle as {tool} saw it, with the profiler's own cost: {why} to set it right"
    kernel_ns = view.summary.get("iteration_kernel_ns") or 0
    latency_ns = view.summary["latency_ms"]["median"] * 1e6
    line = (
        f"clean pass: {milliseconds(kernel_ns)} of kernels in an iteration of "
        f"{milliseconds(latency_ns)}"
    )
    if idle.profiled_frac is not None:
        line += f"; {percent(idle.profiled_frac)} idle under {tool}"
    if idle.high > idle.low:
        why = (
            "the profiled kernels are not those of the clean pass"
            if idle.high == idle.profiled_frac or idle.low == idle.profiled_frac
            else "kernels overlap"
        )
        line += f"; between {percent(idle.low)} and {percent(idle.high)}, since {why}"
    return line


def _idle_evidence(view: RunView) -> tuple[str, ...]:
    basis = idle_basis(view)
    evidence = [basis] if basis else []
    causes = idle_causes(view)
    idle_ns = sum(causes.values())
    under = f" under {view.primary_pass}" if view.primary_pass else ""
    if idle_ns:
        shares = [f"{cause} {percent(ns / idle_ns)}" for cause, ns in causes.items()]
        idle = idle_of_run(view)
        of_step = " a step" if idle is not None and idle.is_of_steps else ""
        evidence.append(f"idle {milliseconds(idle_ns)}{of_step}{under}: {', '.join(shares)}")
    if words := host_share(view.by_step.idle_host):
        activities = ", ".join(f"{percent(share)} {what}" for what, share in words)
        evidence.append(f"while it waited the host was at: {activities}")
    gap_ns = view.summary.get("median_gap_ns")
    if gap_ns is None:  # a run stored before the summary had it
        gap_ns = median_gap_ns(view.span_paths)
    if gap_ns is not None:
        evidence.append(f"median gap between kernels{under} {_gap(gap_ns)}")
    time_ns, count = view.summary.get("kernel_time_ns"), view.summary.get("num_kernels")
    if time_ns and count:
        mean_us = time_ns / count / 1000
        evidence.append(f"mean kernel {mean_us:.1f} us over {counted(count, 'kernel')}")
    return tuple(evidence)


def _gap(gap_ns: float) -> str:
    return milliseconds(gap_ns) if gap_ns >= _LONG_GAP_NS else f"{gap_ns / 1000:.1f} us"


def _busy(view: RunView, idle: Idle | None) -> RunVerdict:
    limit = busy_limit(view)
    if limit.kind == VerdictKind.UNKNOWN and (filled := filled_by_compute(view)):
        return replace(filled, bar=_bar(view))
    skipped = graphs_not_used(view)
    evidence = list(limit.evidence)
    if idle is not None:
        evidence.append(f"the GPU is busy {percent(1 - idle.frac)}{_of_what(view, idle)}")
        if basis := idle_basis(view):
            evidence.append(basis)
    if skipped:
        evidence.append(skipped)
    remarks = slow_products(view.kernels)
    evidence += [r.found for r in remarks]
    steps = (*(r.remedy for r in remarks), *limit.next_steps)
    return replace(limit, evidence=tuple(evidence), next_steps=steps, bar=_bar(view))

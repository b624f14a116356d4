"""Add to a run what its captures do not say themselves: kernel classes and the summary numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.definitions import columns_of, unit_of
from analysis.idle import idle_figures, median_gap_ns, of_program
from analysis.iterations import iteration_kernel_ns
from analysis.latency import latency_ms
from analysis.memory_figures import captured_memory, memory_document, memory_summary, pass_differs
from analysis.merge import merged_captures, pass_summary
from analysis.ranks import RANK_UNITS, RunRanks, ranks_of, summary_of
from analysis.rundata import (
    AssembledRun,
    NamedClass,
    PassWarning,
    RunCapture,
    RunData,
    RunMetric,
    pass_warning,
)
from analysis.tables import CaptureWarning
from core.states import KERNEL_PASS_ORDER, Pass

MAX_OPAQUE_FRAC = 0.5


def assemble(
    data: RunData,
    *,
    user_rules: Sequence[Any] = (),
    peaks: Mapping[str, float] | None = None,
    gpu_model: str | None = None,
) -> AssembledRun:
    """Return the run with classes, summary and metrics. `peaks` are the GPU's measured ones."""
    ranks = ranks_of(data.captures)
    captures, merge_warnings = _merged(data.captures, ranks)
    classes = classify_names(kernel_names(captures), user_rules)
    by_pass = {p: [c for c in captures if c.pass_name == p] for p in map(str, Pass)}
    primary = next((p for p in map(str, KERNEL_PASS_ORDER) if by_pass[p]), None)
    summary: dict[str, Any] = {}
    if primary:
        summary |= _of_capture(pass_summary(by_pass[primary]))
        summary["median_gap_ns"] = median_gap_ns(
            [c.tables.spans for c in by_pass[primary] if c.tables.spans is not None]
        )
        summary |= class_fractions(kernel_frame(by_pass[primary], classes))
    captured = captured_memory(by_pass)
    summary |= memory_summary(data.memory_peaks, captured)
    summary |= _latency(data)
    leading = leading_steps(by_pass.get(primary or "", ()))
    facts = leading.tables.step_facts if leading else {}
    summary |= _idle(by_pass.get(primary or "", ()), summary, facts)
    utilised, impossible = _utilisation(data, summary, peaks or {}, gpu_model)
    summary |= utilised
    summary |= summary_of(ranks.joined)
    memory = memory_document(captured)
    data = _with_captured_oom(data, memory)
    differs = pass_differs(summary, captured)
    impossible += (PassWarning(pass_name="", warning=differs),) if differs else ()
    return AssembledRun(
        data=replace(data, captures=()),
        captures=captures,
        classes=classes,
        summary={k: v for k, v in summary.items() if v is not None},
        memory=memory,
        metrics=data.metrics + _summary_metrics(by_pass, primary, summary),
        warnings=_said_once(data.warnings + merge_warnings + impossible + ranks.warnings),
        ranks=ranks.document,
        peaks=dict(peaks or {}),
        columns=columns_of(summary) | _columns_of_steps(summary, leading, classes),
    )


def on_one_clock(captures: Sequence[RunCapture]) -> tuple[RunCapture, ...]:
    """Return the captures as `assemble` leaves them: processes numbered and times moved."""
    return _merged(captures, ranks_of(captures))[0]


def _merged(
    captures: Sequence[RunCapture], ranks: RunRanks
) -> tuple[tuple[RunCapture, ...], tuple[PassWarning, ...]]:
    return merged_captures(captures, ranks.joined.clocks if ranks.joined is not None else {})


def _of_capture(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a capture's summary with its idle share under the name that says it is profiled."""
    return {"profiled_idle_frac" if k == "idle_frac" else k: v for k, v in summary.items()}


def leading_steps(captures: Sequence[RunCapture]) -> RunCapture | None:
    """Return the capture that supplies the run's steps: the first that has some."""
    in_order = sorted(captures, key=lambda c: c.process)
    return next((c for c in in_order if "source" in c.tables.step_facts), None)


def _columns_of_steps(
    summary: Mapping[str, Any], leading: RunCapture | None, classes: Sequence[NamedClass]
) -> dict[str, Any]:
    """Return what lists say of a step instead of the whole capture, and which the idle share is."""
    facts = leading.tables.step_facts if leading else {}
    idle = of_program(summary, facts)
    columns: dict[str, Any] = {}
    if idle is not None:
        columns = {"idle_frac": idle.frac, "idle_source": idle.source}
    kernels = leading.tables.step_kernels if leading else None
    if kernels is not None and len(kernels):
        category = {c.name: c.category for c in classes}
        kernels = kernels.assign(category=kernels["name"].map(category))
        columns |= {k: v for k, v in class_fractions(kernels).items() if k == "gemm_frac"}
    return columns


def _idle(
    captures: Sequence[RunCapture], summary: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the idle share of the program itself (`analysis.idle`)."""
    frames = [c.tables.phases for c in captures if c.tables.phases is not None]
    known = [f for f in frames if len(f)]
    kernel_ns = facts.get("kernel_ns")
    if "source" not in facts and known:
        kernel_ns = iteration_kernel_ns(pd.concat(known, ignore_index=True))
    figures = idle_figures(summary, kernel_ns)
    return figures | ({"iteration_kernel_ns": round(kernel_ns)} if figures and kernel_ns else {})


def _said_once(warnings: Sequence[PassWarning]) -> tuple[PassWarning, ...]:
    """Return the first of those that say the same, whichever pass found it."""
    first: dict[CaptureWarning, PassWarning] = {}
    for warning in warnings:
        first.setdefault(warning.warning, warning)
    return tuple(first.values())


def kernel_names(captures: Sequence[RunCapture]) -> dict[str, bool]:
    """Return every kernel name of the captures and whether it is an opaque graph launch."""
    names: dict[str, bool] = {}
    for capture in captures:
        kernels, counters = capture.tables.kernels, capture.tables.counters
        if kernels is not None:
            names |= dict(zip(kernels["name"], kernels["is_opaque"].astype(bool), strict=True))
        if counters is not None:
            names |= {name: False for name in counters["name"] if name not in names}
    return names


def classify_names(
    names: Mapping[str, bool], user_rules: Sequence[Any] = ()
) -> tuple[NamedClass, ...]:
    """Return the class of each name by the present rules, the user's own first."""
    from analysis.classify import classify

    classes = []
    for name, is_opaque in names.items():
        if is_opaque:
            classes.append(_opaque(name))
            continue
        result = classify(name, user_rules=user_rules)
        classes.append(
            NamedClass(
                name=name,
                short_name=result.short_name,
                category=str(result.category),
                origin=str(result.origin),
                confidence=float(result.confidence),
                rule=result.rule,
            )
        )
    return tuple(classes)


def _opaque(name: str) -> NamedClass:
    """Return the class of a whole CUDA graph launch: its kernels were not recorded."""
    return NamedClass(
        name=name,
        short_name=name,
        category="opaque",
        origin="unknown",
        confidence=1.0,
        rule="whole graph launch",
    )


def kernel_frame(captures: Sequence[RunCapture], classes: Sequence[NamedClass]) -> pd.DataFrame:
    """Return the kernels of some captures with `category` and `origin`; empty without any."""
    frames = [c.tables.kernels for c in captures if c.tables.kernels is not None]
    frames = [f for f in frames if len(f)]
    if not frames:
        return pd.DataFrame()
    by_name = {c.name: c for c in classes}
    kernels = pd.concat(frames, ignore_index=True)
    kernels["category"] = [by_name[n].category for n in kernels["name"]]
    kernels["origin"] = [by_name[n].origin for n in kernels["name"]]
    return kernels


def class_fractions(kernels: pd.DataFrame) -> dict[str, float]:
    """Return gemm_frac, attention_frac and unclassified_frac; {} without kernels.

    Where most of the GPU time is in opaque graph launches the first two are not known.
    """
    from analysis.classify import fractions

    if kernels.empty:
        return {}
    shares = fractions(kernels)
    total_ns = sum(shares["category_total_ns"].values())
    wanted = ["unclassified_frac"]
    if shares["category_total_ns"].get("opaque", 0) <= MAX_OPAQUE_FRAC * total_ns:
        wanted += ["gemm_frac", "attention_frac"]
    return {k: shares[k] for k in wanted if k in shares}


def _latency(data: RunData) -> dict[str, Any]:
    clean = data.samples[data.samples["pass"] == str(Pass.CLEAN)]
    stats = latency_ms(clean) if len(clean) else {}
    return {"latency_ms": stats} if stats else {}


def _utilisation(
    data: RunData, summary: Mapping[str, Any], peaks: Mapping[str, float], gpu_model: str | None
) -> tuple[dict[str, Any], tuple[PassWarning, ...]]:
    """Return mfu and mbu where cost, latency and peak are known; above 1 a warning, no figure."""
    median = (summary.get("latency_ms") or {}).get("median")
    if not data.cost or median is None:
        return {}, ()
    from analysis.roofline import utilisation

    result = utilisation(cost=data.cost, latency_ns=median * 1e6, peaks=peaks, gpu_model=gpu_model)
    figures = {"mfu": result.mfu, "mbu": result.mbu}
    errors = tuple(
        pass_warning("", f"{name}_above_one", message) for name, message in result.errors
    )
    return {name: value for name, value in figures.items() if value is not None}, errors


def _with_captured_oom(data: RunData, memory: Mapping[str, Any]) -> RunData:
    """Take an out-of-memory event of a snapshot as the result of a run that says none itself.

    A run that says so itself gets the request from its snapshot: that is what was asked for, where
    PyTorch's message names the segment that the allocator wanted for it.
    """
    event = memory.get("oom")
    if not event:
        return data
    if data.oom:
        asked, segment = event.get("requested_bytes"), data.oom.get("requested_bytes")
        if asked is None or segment is None or asked == segment:
            return data
        return replace(data, oom={**data.oom, "requested_bytes": asked, "segment_bytes": segment})
    return data if data.job is not None else replace(data, status="oom", oom=event)


def _summary_metrics(
    by_pass: Mapping[str, list[RunCapture]], primary: str | None, summary: Mapping[str, Any]
) -> tuple[RunMetric, ...]:
    """Return the summary's numbers as metrics with units, each under the pass it came from."""
    metrics: dict[tuple[str, str], RunMetric] = {}

    def add(pass_name: str, name: str, value: Any, unit: str) -> None:
        if isinstance(value, int | float):
            metrics[pass_name, name] = RunMetric(
                pass_name=pass_name, phase="", name=name, value=float(value), unit=unit
            )

    for pass_name, captures in by_pass.items():
        for name, value in _of_capture(pass_summary(captures)).items():
            add(pass_name, name, value, unit_of(name))
    for name in ("gemm_frac", "attention_frac", "unclassified_frac"):
        add(primary or "", name, summary.get(name), "fraction")
    for name, unit in RANK_UNITS.items():
        add(primary or "", name, summary.get(name), unit)
    for name, source in (summary.get("memory_sources") or {}).items():
        pass_of = {"allocator": Pass.CLEAN, "snapshot": Pass.MEMORY, "trace": Pass.TRACE}
        add(str(pass_of.get(source, Pass.NSYS)), name, summary.get(name), "B")
    for name in ("mfu", "mbu"):
        add(str(Pass.CLEAN), name, summary.get(name), "fraction")
    for name, value in (summary.get("latency_ms") or {}).items():
        unit = "count" if name[0] == "n" else "fraction" if name == "cv" else "ms"
        add(str(Pass.CLEAN), f"latency_{name}", value, unit)
    return tuple(metrics.values())

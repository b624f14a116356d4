"""The headline numbers of a run, each with how it was obtained or why it is not known."""

from functools import partial
from typing import Any

import numpy as np

from analysis.compare.metrics import Metric, profiled_iterations
from analysis.idle import idle_of_run
from analysis.latency import why_no_clean
from analysis.per_step import basis_of, kernel_time_of_one, num_kernels_of_one, step_fractions
from analysis.roofline import bytes_peak, flops_peak
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.ui.format import bytes_, count, duration, percent, significant
from app.ui.widgets import Card, figure, plain_markdown
from core.spec import PROGRAM_TIME
from core.states import Pass


def run_cards(view: RunView) -> list[Card]:
    """Return the cards in reading order; a CPU run has none of the GPU's idle time."""
    return [
        _latency(view),
        _kernel_time(view),
        *([] if is_cpu_run(view) else [_busy(view)]),
        _gemm(view),
        *_utilisation(view),
        _memory(view),
        *own_cards(view),
    ]


def _latency(view: RunView) -> Card:
    latency: Any = view.summary.get("latency_ms")
    if isinstance(latency, dict) and latency.get("median") is not None:
        note = f"{count(latency.get('n'))} samples"
        if latency.get("ci95"):
            low, high = latency["ci95"]
            note = f"95 %: {duration(low * 1e6)} to {duration(high * 1e6)}, {note}"
        note += _overhead(view, float(latency["median"]) * 1e6)
        return figure("latency_ms.median", latency["median"], note, label="Latency")
    profiled = profiled_iterations(view)
    facts = view.by_step.facts
    if profiled is None and facts.get("period_ns"):
        regular = facts["count"] - facts["num_excluded"]
        return figure(
            "step.period_ns",
            facts["period_ns"],
            f"median of {count(regular)} of {count(facts['count'])} steps; {_no_clean(view)}",
            label=f"Time of a step, under {view.primary_pass or 'the profiler'}",
            about="Latency is measured in a clean pass. ",
        )
    if profiled is not None:
        values_ms, kind = profiled
        return Card(
            label=f"Iteration, under {view.primary_pass or 'the profiler'}",
            value=duration(float(np.median(values_ms)) * 1e6),
            note=f"{_PHASE_TIMES[kind]}, median of {len(values_ms)}; {_no_clean(view)}",
            definition="Median time of an iteration under the profiler, from "
            "first to last GPU operation if known, else its host "
            "range. It includes the profiler's overhead, and "
            "comparisons use the same figure. Latency is measured in "
            "a clean pass.",
        )
    why = _no_clean(view)
    note = f"{why} recorded" if why == "no clean pass" else why
    return figure("latency_ms.median", None, note, label="Latency")


_PHASE_TIMES = {"projected": "first to last GPU operation", "host": "host range"}


def _no_clean(view: RunView) -> str:
    return why_no_clean(w.code for w in view.warnings)


def own_cards(view: RunView) -> list[Card]:
    """Return the numbers that the program itself gave: what it printed, and its whole time."""
    rows = view.metrics[view.metrics["pass"] == Pass.CLEAN] if len(view.metrics) else view.metrics
    cards = []
    for row in rows.itertuples() if view.run.workload == "command" else ():
        if not row.process_values or row.name == "phase_latency":
            continue
        spread = f"mean of {count(len(row.process_values))} processes, "
        spread = spread if len(row.process_values) > 1 else ""
        if row.name == PROGRAM_TIME:
            note = f"{spread}includes start-up: not a latency"
            card = Card(label="Whole program", value=duration(row.value * 1e9), note=note,
                        definition=_PROGRAM_TIME)  # fmt: skip
        else:
            way = Metric(name=row.name, unit=row.unit, better=row.better)
            better = "higher" if way.higher_is_better else "lower"
            card = Card(
                label=plain_markdown(row.name),
                value=significant(row.value, 5),
                note=f"{spread}printed by the program; {better} is better",
                definition=_PRINTED,
            )
        cards.append(card)
    return cards


_PROGRAM_TIME = (
    "Time from the start to the end of the process in the clean pass, if the "
    "program ran to its own end. It includes start-up, compilation and data "
    "loading."
)
_PRINTED = (
    "Median of the numbers that the program printed in the clean pass and `--metric` matched."
)


def _overhead(view: RunView, clean_ns: float) -> str:
    """Return what the pass behind the kernel figures cost: `; under nsys 2.31 ms (+12 %)`."""
    rows = view.profiled_samples
    mine = rows[rows["pass"] == view.primary_pass] if len(rows) else rows
    if mine.empty or not clean_ns:
        return ""
    profiled = float(mine["latency_ns"].median())
    more = f"{100 * (profiled / clean_ns - 1):+.0f}".replace("-", "\u2212")
    return f"; under {view.primary_pass} {duration(profiled)} ({more} %)"


def _kernel_time(view: RunView) -> Card:
    total, num = view.summary.get("kernel_time_ns"), view.summary.get("num_kernels")
    is_cpu = is_cpu_run(view)
    label, work = ("Operator time", "operators") if is_cpu else ("Kernel time", "kernels")
    card = partial(figure, "kernel_time_ns", label=label, about=_of_operators(view))
    if total is None:
        is_there = view.primary_pass in (Pass.NSYS, Pass.TRACE)
        passes = "trace pass" if is_cpu else "nsys or trace pass"
        why = f"no {work} in the capture" if is_there else f"no {passes}"
        return card(None, why)
    basis, one_ns = basis_of(view), kernel_time_of_one(view)
    if basis is not None and one_ns is not None:
        article = "an" if basis.word == "iteration" else "a"
        note = f"{work}: {count(num_kernels_of_one(view))} {article} {basis.word}, "
        note += f"{'median' if basis.is_of_steps else 'mean'} of {basis.told}"
        note += f"; whole capture {duration(total)}"
        return card(one_ns, note, label=f"{label} / {basis.word}")
    return card(total, f"{work}: {count(num)}")


def _of_operators(view: RunView) -> str:
    return OF_OPERATORS if is_cpu_run(view) else ""


OF_OPERATORS = (
    "For a CPU run, a kernel is a CPU operator, and its time is its self time, "
    "without the operators it calls. "
)
"""Goes before a definition that speaks of kernels."""


def _busy(view: RunView) -> Card:
    idle = idle_of_run(view)
    card = partial(figure, "idle_frac", label="GPU busy", about="1 - idle. ")
    if idle is None:
        return card(None, "no kernel times recorded")
    tool = view.primary_pass or "the profiler"
    if idle.is_of_steps:
        facts = view.by_step.facts
        busy, period = duration(facts.get("busy_ns")), duration(facts.get("period_ns"))
        note = f"{busy} of {period} per step under {tool}; whole capture "
        note += percent(1 - (idle.profiled_frac or 0))
        return card(1 - idle.frac, note)
    if not idle.is_clean:
        busy, span = (duration(view.summary.get(k)) for k in ("busy_ns", "span_ns"))
        note = f"{busy} of {span} under {tool}: a lower bound; no clean pass"
        return card(1 - idle.frac, note)
    note = f"{duration(view.summary.get('iteration_kernel_ns'))} of kernel time per iteration"
    if idle.high > idle.low:
        note += f"; between {percent(1 - idle.high)} and {percent(1 - idle.low)}"
    if idle.profiled_frac is not None:
        note += f"; under {tool} {percent(1 - idle.profiled_frac)}"
    return card(1 - idle.frac, note)


def _gemm(view: RunView) -> Card:
    whole = view.summary.get("gemm_frac")
    of_step = step_fractions(view.by_step)
    figures = of_step if "gemm_frac" in of_step else view.summary
    frac = figures.get("gemm_frac")
    card = partial(figure, "gemm_frac", about=_of_operators(view))
    if frac is None:
        return card(None, f"no classified {'operators' if is_cpu_run(view) else 'kernels'}")
    attention, unknown = figures.get("attention_frac"), figures.get("unclassified_frac")
    note = f"plus attention {percent(attention)}; unrecognised {percent(unknown)}"
    if figures is of_step:
        note += f"; of a step, whole capture {percent(whole)}"
    return card(frac, note)


def _utilisation(view: RunView) -> list[Card]:
    return [
        figure(name, value, _why_not(view, name) if value is None else _held_against(view, name))
        for name in ("mfu", "mbu")
        for value in (view.summary.get(name),)
    ]


def _peak_source(view: RunView, name: str) -> str | None:
    dtype = str(view.cost.get("flops_dtype") or "")
    if name == "mbu":
        peak = bytes_peak(view.peaks, view.run.gpu_model)
    else:
        peak = flops_peak(view.peaks, view.run.gpu_model, dtype)
    return peak.source if peak else None


def _held_against(view: RunView, name: str) -> str:
    source = _peak_source(view, name)
    words = {"measured": "of the peak measured on this GPU", "datasheet": "of the datasheet's peak"}
    return words.get(source or "", "of the peak")


def _why_not(view: RunView, name: str) -> str:
    if not view.cost.get("flops" if name == "mfu" else "bytes"):
        return "no cost model for this run"
    if not view.summary.get("latency_ms"):
        return "no clean latency"
    if _peak_source(view, name) is None:
        return f"no peak known for {'the CPU' if is_cpu_run(view) else 'this GPU'}"
    return "over 100 % of the peak: see the notes"


def _memory(view: RunView) -> Card:
    peak = view.summary.get("peak_memory_bytes")
    if peak is None:
        of_cpu = "PyTorch counts it on CUDA devices only"
        why = of_cpu if is_cpu_run(view) else "no memory pass recorded"
        return figure("peak_memory_bytes", None, why)
    reserved = view.summary.get("reserved_bytes")
    source = (view.summary.get("memory_sources") or {}).get("peak_memory_bytes")
    basis = "taken from the driver" if source == "driver" else "allocated"
    note = f"{basis}; reserved {bytes_(reserved) if reserved else 'not recorded'}"
    return figure("peak_memory_bytes", peak, note)

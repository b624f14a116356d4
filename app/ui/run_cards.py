"""The headline numbers of a run, each with how it was obtained or why it is not known."""

from typing import Any

from analysis.runview import RunView
from app.ui.format import UNKNOWN, bytes_, count, duration, is_known, percent
from app.ui.shape import num_iterations
from app.ui.widgets import Card
from core.states import Pass


def run_cards(view: RunView) -> list[Card]:
    """Return the cards in reading order."""
    return [
        _latency(view),
        _kernel_time(view),
        _busy(view),
        _gemm(view),
        *_utilisation(view),
        _memory(view),
    ]


def _latency(view: RunView) -> Card:
    found: Any = view.summary.get("latency_ms")
    text = (
        "Milliseconds an iteration, measured without a profiler (CUDA events on a GPU). "
        "Median with a 95 % bootstrap interval."
    )
    if isinstance(found, dict) and found.get("median") is not None:
        note = f"{count(found.get('n'))} samples"
        if found.get("ci95"):
            low, high = found["ci95"]
            note = f"95 %: {duration(low * 1e6)} to {duration(high * 1e6)}, {note}"
        return Card(
            label="Latency", value=duration(found["median"] * 1e6), note=note, definition=text
        )
    host = _host_iteration_ns(view)
    if host is not None:
        return Card(
            label="Latency, profiled",
            value=duration(host),
            note=f"host range of {num_iterations(view.phases)} iterations; no clean pass",
            definition="Mean host range of an iteration under the profiler: it contains the "
            "profiler's own cost.",
        )
    return Card(label="Latency", value=UNKNOWN, note="no clean pass recorded", definition=text)


def _host_iteration_ns(view: RunView) -> float | None:
    if view.phases.empty:
        return None
    leaf = view.phases["path"].astype(str).str.rsplit("/", n=1).str[-1]
    rows = view.phases[leaf.str.fullmatch(r"iteration_\d+")]
    ranges = int(rows["num_ranges"].sum())
    if not ranges or rows["host_ns"].isna().all():
        return None
    return float(rows["host_ns"].sum()) / ranges


def _kernel_time(view: RunView) -> Card:
    total, num = view.summary.get("kernel_time_ns"), view.summary.get("num_kernels")
    what = "operators' self time" if view.primary_pass == Pass.TRACE and _on_cpu(view) else None
    text = "Sum of kernel durations; overlapping kernels count twice."
    if total is None:
        return Card(
            label="Kernel time", value=UNKNOWN, note="no nsys or trace pass", definition=text
        )
    iterations = num_iterations(view.phases)
    if iterations:
        return Card(
            label="Kernel time / iteration",
            value=duration(total / iterations),
            note=f"{what or 'kernels'}: {count(round(num / iterations)) if num else UNKNOWN} "
            f"an iteration; {duration(total)} in all",
            definition=text,
        )
    note = f"{what or 'kernels'}: {count(num)}"
    return Card(label="Kernel time", value=duration(total), note=note, definition=text)


def _on_cpu(view: RunView) -> bool:
    return (view.run.gpu_model or "").lower() == "cpu"


def _busy(view: RunView) -> Card:
    idle, busy, span = (view.summary.get(k) for k in ("idle_frac", "busy_ns", "span_ns"))
    text = "Union of kernel intervals over the span from the first to the last kernel, per device."
    if idle is None:
        why = "no kernel times recorded"
        return Card(label="GPU busy", value=UNKNOWN, note=why, definition=text)
    label = "CPU operators busy" if _on_cpu(view) else "GPU busy"
    note = f"{duration(busy)} of {duration(span)}"
    return Card(label=label, value=percent(1 - idle), note=note, definition=text)


def _gemm(view: RunView) -> Card:
    frac = view.summary.get("gemm_frac")
    text = (
        "Kernel time of GEMM and GEMV kernels, split-K reductions included, over all kernel time. "
        "Fused attention is a class of its own."
    )
    if frac is None:
        why = "no classified kernels"
        return Card(label="GEMM fraction", value=UNKNOWN, note=why, definition=text)
    attention = view.summary.get("attention_frac")
    unknown = view.summary.get("unclassified_frac")
    note = f"attention {percent(attention)} apart; not recognised {percent(unknown)}"
    return Card(label="GEMM fraction", value=percent(frac), note=note, definition=text)


def _utilisation(view: RunView) -> list[Card]:
    texts = {
        "mfu": "FLOPs of the cost model / latency / the peak measured on this GPU.",
        "mbu": "Fewest bytes of the cost model / latency / the bandwidth measured on this GPU.",
    }
    return [
        Card(
            label=name.upper(),
            value=percent(view.summary.get(name)),
            note="of the measured peak"
            if view.summary.get(name) is not None
            else _why_not(view, name),
            definition=text,
        )
        for name, text in texts.items()
    ]


def _why_not(view: RunView, name: str) -> str:
    if not view.cost.get("flops" if name == "mfu" else "bytes"):
        return "no cost model for this run"
    if not view.summary.get("latency_ms"):
        return "no clean latency"
    if not view.peaks:
        return "no measured peak for this GPU: doctor --measure"
    return "over 100 % of the peak: the cost model does not fit"


def _memory(view: RunView) -> Card:
    peak = view.summary.get("peak_memory_bytes")
    text = "Largest allocated memory, in bytes (1 GB is 10^9): from the snapshot or the allocator."
    if peak is None:
        why = "no memory pass recorded"
        return Card(label="Peak memory", value=UNKNOWN, note=why, definition=text)
    reserved = view.memory_points["reserved_bytes"].max() if len(view.memory_points) else None
    known = is_known(reserved)
    note = f"reserved {bytes_(float(reserved))}" if known else "allocated; reserved not recorded"
    return Card(label="Peak memory", value=bytes_(peak), note=note, definition=text)

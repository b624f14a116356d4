"""Where time and memory went between two sides, from one capture of each."""

from collections.abc import Sequence
from typing import TypedDict

from analysis.compare.held import Held
from analysis.compare.kernels import match_kernels
from analysis.compare.memory import compare_memory
from analysis.compare.metrics import Metric
from analysis.compare.operators import operator_waterfall
from analysis.compare.records import KernelPair, MemoryGrowth, Waterfall
from analysis.compare.waterfall import make_waterfall, representative
from analysis.compare.words import WORDS, RanOn
from analysis.runview import RunView


class Explanation(TypedDict):
    """The parts of a comparison that come from captures."""

    waterfall: Waterfall | None
    kernel_waterfall: Waterfall | None
    operator_waterfall: Waterfall | None
    kernels: tuple[KernelPair, ...]
    memory: tuple[MemoryGrowth, ...]


def make_reason(held: Held, explained: Explanation, metric: Metric, device: RanOn) -> str:
    """Return the verdict's reason; without a ratio, what the captures do say."""
    fall = explained["kernel_waterfall"]
    if not held.comparable or held.found.ratio is not None or fall is None or not fall.total_a_ns:
        return held.reason
    if metric.name == "kernel_time":
        return held.reason  # opaque graphs: their time stands for kernels that nobody saw
    change = fall.total_b_ns / fall.total_a_ns - 1
    totals = f"{fall.total_a_ns / 1e6:.4g} -> {fall.total_b_ns / 1e6:.4g} ms"
    return f"{held.reason}; {WORDS[device].time} {totals} ({change:+.1%}) per {fall.per}"


def explain(a: Sequence[RunView], b: Sequence[RunView], metric: Metric) -> Explanation:
    """Say where time and memory went, from one run a side: the newest that has the capture."""
    found = Explanation(
        waterfall=None, kernel_waterfall=None, operator_waterfall=None, kernels=(), memory=()
    )
    one_a, one_b = representative(a), representative(b)
    if one_a and one_b:
        found["kernel_waterfall"] = make_waterfall(one_a, one_b, "kernel_time")
        span = make_waterfall(one_a, one_b, "span") if metric.name != "kernel_time" else None
        found["waterfall"] = span or found["kernel_waterfall"]
        found["operator_waterfall"] = operator_waterfall(one_a, one_b)
        found["kernels"] = match_kernels(one_a, one_b)
    with_memory = [[v for v in side if len(v.memory_at_peak)] for side in (a, b)]
    if all(with_memory):
        found["memory"] = compare_memory(with_memory[0][-1], with_memory[1][-1])
    return found

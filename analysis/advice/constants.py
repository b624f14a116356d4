"""Constants of the models: each with what set it. None was set by a pair that the score counts.

`docs/advice.md` says which pairs of the example data set constants (`score.is_held_out`).
"""

from dataclasses import dataclass

MODEL_VERSION = 4
"""Raised with every change of a formula or a constant: stored predictions keep theirs."""
GRAPH_NODE_GAP_NS = 430.0
"""Between two kernels of a replayed CUDA graph: (measured - kernel time - a launch) / kernels."""
COMPILED_ENTRY_LAUNCHES = 10.0
"""Host time to enter a compiled function and start its graph, in launches of the eager program:
guards and wrapper, 4.8 (a compiled layer against the same layer as it is, on a CPU), and as much
again for the graph's own checks, copies and replay. No pair of runs set it."""
EAGER_LAUNCH_RATIO = 3.7
"""Host time of one kernel in an eager PyTorch program, in the GPU's measured `launch_ns`."""
CASTS_PER_PRODUCT = 1.5
"""Casts that autocast adds for each matrix product: the weight's always, the input's half."""
SDPA_FRAC = 0.89
"""Of the measured matrix rate, what PyTorch's fused attention reaches forward (16-bit types)."""
TRITON_FRAC = 0.74
"""The same of the Triton attention kernel."""
FUSED_OPTIMIZER_PASSES = 7
"""AdamW in one kernel: weight, gradient and two moments read, three written."""
FOREACH_OPTIMIZER_PASSES = 20
"""AdamW one operation at a time over lists of tensors: reads and writes of its eight kernels."""


CPU_FLOPS_PER_S = 2e9
"""What one core of any CPU reaches in small products, at the least: an assumption."""
CPU_BANDWIDTH_THREADS = 4
"""Threads that fill a socket's memory bandwidth, so that more do not help operators without
products: an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """Half widths of an interval, as natural logarithms of a ratio."""

    gpu: float = 0.15
    "Where kernels decide."
    host: float = 0.25
    "Where the host decides; the base's own variation is added."
    untried: float = 0.25
    "Added while nothing of that kind was ever measured."


WIDTH = Width()
"""Assumed, not fitted, by people who had seen the example runs; a kind's record widens them."""

"""The models: what a changed program should take, from one step of a run. One function a change.

Each returns `Estimate`s of latency in ns, or None where the change does not apply or the run does
not hold what the formula needs. A step takes as long as the slower of two that run side by side:

    latency = max(GPU time, host time)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.advice.constants import (
    CASTS_PER_PRODUCT,
    COMPILED_ENTRY_LAUNCHES,
    CPU_FLOPS_PER_S,
    FOREACH_OPTIMIZER_PASSES,
    FUSED_OPTIMIZER_PASSES,
    GRAPH_NODE_GAP_NS,
    SDPA_FRAC,
    TRITON_FRAC,
)
from analysis.advice.step_work import EAGER_PHASES, FUSIBLE, StepWork
from analysis.classify import Category
from core.model_sizes import DTYPE_BYTES
from core.numbers import decimal

_NAIVE_ATTENTION = ("attention_scores", "softmax", "attention_output")
MIN_HEAD_DIM = 128
"""Narrower heads reach another share of the rate: the one pair measured was missed by 27 %."""
FIXED_NS = 3_000
"""A kernel that does nothing takes 2 to 3 us: below this, its size does not matter."""
FIXED_CPU_NS = 20_000
"""An operator of PyTorch costs 5 to 20 us on a CPU before it computes anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a model says."""

    latency_ns: float
    host_decides: bool
    evidence: tuple[str, ...]
    "The figures that it follows from, a sentence each."

    @classmethod
    def of_slower(
        cls, gpu_ns: float, host_ns: float, *evidence: str, beside_ns: float = 0.0
    ) -> "Estimate":
        """Return the time of GPU or host, whichever takes longer, and `beside_ns` that stay."""
        return cls(
            latency_ns=max(gpu_ns, host_ns) + beside_ns,
            host_decides=host_ns > gpu_ns,
            evidence=evidence,
        )


def graph_replay(step: StepWork) -> Estimate | None:
    """Replay the step as one CUDA graph: no launch gaps.

        latency [ns] = GPU time + launches * GRAPH_NODE_GAP_NS + launch_ns

    GPU time and launches of the run; `launch_ns` is the GPU's measured peak (the replay itself).
    """
    if not step.on_gpu or not step.num_launches:
        return None
    latency_ns = _replayed_ns(step, step.gpu_ns, step.num_launches)
    return Estimate(
        latency_ns=latency_ns,
        host_decides=False,
        evidence=(
            _gpu_evidence(step),
            f"replayed, {step.num_launches:.0f} operations lie "
            f"{GRAPH_NODE_GAP_NS / 1e3:.2f} us apart",
        ),
    )


def compiled(step: StepWork) -> Estimate | None:
    """`torch.compile` without graphs: chains of elementwise, copy and norm kernels become one each.

        GPU  [ns] = fused GPU time + fused launches * gap        (`StepWork.fused`)
        host [ns] = fused launches * host time per launch of the run as it is
        latency   = max(GPU, host) + clean latency of the phases that stay eager

    The optimizer and the grouping of experts stay eager: their kernels and their share of the
    launches are left out of the first two. None for a training step whose host decides: the pair
    that tried it was missed by half.
    """
    if not step.num_launches or not step.on_gpu:
        return None
    kept = step.in_phase(*EAGER_PHASES)
    kept_ns = sum(step.phase_ns.get(n, 0.0) for n in EAGER_PHASES) if kept.any() else 0.0
    gpu_ns, launches = step.fused
    num_before = step.num_launches
    if kept_ns:
        gpu_ns -= step.time_ns(kept)
        launches -= step.count(kept)
        num_before -= step.count(kept)
    gpu_ns += launches * step.gap_ns
    host_ns = launches * _launch_ns(step, num_before, kept_ns)
    if "optimizer" in step.phase_ns and host_ns > gpu_ns:
        return None
    evidence = (_gpu_evidence(step), _fused_evidence(step))
    return Estimate.of_slower(gpu_ns, host_ns, *evidence, beside_ns=kept_ns)


def compiled_graph(step: StepWork, *, is_compiled: bool) -> Estimate | None:
    """`torch.compile` with CUDA graphs (reduce-overhead, max-autotune): fused, then replayed.

        GPU  [ns] = fused GPU time + fused launches * GRAPH_NODE_GAP_NS + launch_ns
        host [ns] = COMPILED_ENTRY_LAUNCHES * host time per launch
        latency   = max(GPU, host)

    A run that is compiled already keeps its own kernels.
    """
    each_ns = step.host_ns_per_launch
    if not step.on_gpu or not step.num_launches or each_ns is None:
        return None
    if step.in_phase(*EAGER_PHASES).any():
        return None
    gpu_ns, launches = (step.gpu_ns, step.num_launches) if is_compiled else step.fused
    latency_ns = _replayed_ns(step, gpu_ns, launches)
    host_ns = COMPILED_ENTRY_LAUNCHES * each_ns
    evidence = (_gpu_evidence(step), *(() if is_compiled else (_fused_evidence(step),)))
    return Estimate.of_slower(latency_ns, host_ns, *evidence)


def other_dtype(step: StepWork, dtype: str, *, is_autocast: bool) -> Estimate | None:
    """Another dtype: products at its measured rate, the rest by bytes.

        products [ns] = max(time * rate(now) / rate(then), bytes of the cost model then / copy rate)
        rest     [ns] = time * element size then / now                     (autocast, TF32: as is)
        casts    [ns] = 1.5 * weight bytes / copy rate                      (autocast only)
        host     [ns] = (launches + casts) * host time per launch            casts = 1.5 per product
        latency       = max(products + rest + casts + launches * gap, host)

    Rates in FLOP/s and B/s are the GPU's measured peaks, else its datasheet's. The floor by bytes
    is of steps whose cost model lies left of the new dtype's ridge.
    """
    old = str(step.params.get("dtype"))
    old_rate, rate, bytes_rate = step.flops_rate(old), step.flops_rate(dtype), step.bytes_rate
    if not old_rate or not rate or not bytes_rate or not step.on_gpu or not step.num_launches:
        return None
    same_bytes = is_autocast or DTYPE_BYTES[dtype] == DTYPE_BYTES[old]
    size = 1.0 if same_bytes else DTYPE_BYTES[dtype] / DTYPE_BYTES[old]
    products_ns = step.time_ns(step.is_product)
    new_ns = max(products_ns * old_rate / rate, _floor_ns(step, rate, bytes_rate, size))
    casts = is_autocast and DTYPE_BYTES[dtype] < DTYPE_BYTES[old]
    num_casts = CASTS_PER_PRODUCT * step.count(step.is_product) if casts else 0.0
    casts_ns = 1.5 * _weight_bytes(step) / bytes_rate * 1e9 if casts else 0.0
    rest_ns = (step.gpu_ns - products_ns) * size
    launches = step.num_launches + num_casts
    gpu_ns = new_ns + rest_ns + casts_ns + launches * step.gap_ns
    host_ns = launches * (step.host_ns_per_launch or 0.0)
    return Estimate.of_slower(
        gpu_ns,
        host_ns,
        f"matrix products take {decimal(products_ns / 1e6, 3)} of "
        f"{decimal(step.latency_ns / 1e6, 3)} ms",
        f"measured rates: {old} {decimal(old_rate / 1e12, 3)}, {dtype} "
        f"{decimal(rate / 1e12, 3)} TFLOP/s",
        *((f"about {num_casts:.0f} casts are added",) if casts else ()),
    )


def fused_attention(step: StepWork, name: str) -> Estimate | None:
    """A fused attention kernel instead of the naive one, by its arithmetic.

        attention [ns] = FLOPs / (SDPA_FRAC or TRITON_FRAC * measured rate of the dtype)
        latency        = latency now - naive attention's share + attention

    The workload `attention` is all attention, its FLOPs the cost model's. Elsewhere the share is
    the time of kernels in the ranges attention_scores, softmax and attention_output, the FLOPs
    4 * batch * seq_len^2 * d_model * layers, and the launches that go are the host's gain. None for
    32-bit types, backward passes, heads narrower than 128, and where the host would decide: kernels
    under 4 launches long.
    """
    dtype = str(step.params.get("dtype"))
    rate, each_ns = step.flops_rate(dtype), step.peaks.get("launch_ns")
    if dtype not in ("bf16", "fp16") or not rate or not each_ns or not step.on_gpu:
        return None
    if step.params.get("mode") in ("backward", "forward_backward", "train_step"):
        return None
    if head_dim(step.params) < MIN_HEAD_DIM:
        return None
    share = SDPA_FRAC if name == "sdpa" else TRITON_FRAC
    if not step.params.get("d_model"):
        flops = float(step.cost.get("flops") or 0.0)
        ns = flops / (share * rate) * 1e9
        if ns < 16 * each_ns:
            return None
        return Estimate(latency_ns=ns, host_decides=False, evidence=(_rate(flops, share, rate),))
    naive = step.in_phase(*_NAIVE_ATTENTION)
    flops = _attention_flops(step.params)
    if not naive.any() or not flops:
        return None
    ns = flops / (share * rate) * 1e9
    saved_ns = step.time_ns(naive) - ns
    gone = step.count(naive) - float(step.params.get("layers") or 1)
    gpu_ns = step.gpu_ns - saved_ns
    gpu_ns += (step.num_launches - gone) * step.gap_ns
    host_ns = (step.num_launches - gone) * (step.host_ns_per_launch or 0.0)
    return Estimate.of_slower(
        gpu_ns,
        host_ns,
        f"naive attention takes {decimal(step.time_ns(naive) / 1e6, 3)} of "
        f"{decimal(step.latency_ns / 1e6, 3)} ms in {step.count(naive):.0f} kernels",
        _rate(flops, share, rate),
    )


def larger_batch(step: StepWork, factor: int) -> Estimate | None:
    """`factor` times the batch: the launches stay the same, their work grows.

        kernel under 3 us    stays
        product [ns]         max(time, factor * FLOPs' time), or factor * time where arithmetic
                             limits it now (FLOPs' time is 30 % of it or more)
        any other kernel     factor * time
        latency              max(GPU time + launches * gap, host time as it is)

    FLOPs' time: the cost model's FLOPs / measured rate of the dtype, at most the products' time.
    The optimizer stays.
    """
    if step.operations.empty or not step.on_gpu:
        return None
    each_ns = step.operations["duration_ns"]
    small = each_ns < FIXED_NS
    optimizer = step.in_phase("optimizer")
    fixed_ns = step.time_ns(small | optimizer)
    products = step.is_product & ~small & ~optimizer
    others_ns = step.time_ns(~small & ~optimizer & ~products)
    products_ns = step.time_ns(products)
    rate = step.flops_rate(str(step.cost.get("flops_dtype") or "bf16"))
    flops = float(step.cost.get("flops") or 0.0)
    by_rate_ns = min(products_ns, flops / rate * 1e9) if rate and flops else products_ns
    is_by_bytes = by_rate_ns < 0.3 * products_ns
    new_products_ns = max(products_ns, factor * by_rate_ns) if is_by_bytes else factor * products_ns
    gpu_ns = fixed_ns + new_products_ns + factor * others_ns + step.num_launches * step.gap_ns
    host_ns = step.latency_ns if step.waits else 0.0
    return Estimate.of_slower(
        gpu_ns,
        host_ns,
        _gpu_evidence(step),
        f"products are limited by {'the bytes of their weights' if is_by_bytes else 'FLOP/s'}",
    )


def fused_optimizer(step: StepWork) -> Estimate | None:
    """AdamW as one kernel for many tensors instead of a kernel for each of its operations.

    GPU  [ns] = GPU time of the phase * FUSED_OPTIMIZER_PASSES / FOREACH_OPTIMIZER_PASSES
    host [ns] = latency of the phase * the same ratio, where the host decides
    latency   = latency now - clean latency of the phase + max(GPU, host)
    """
    now_ns = step.phase_ns.get("optimizer")
    rows = step.in_phase("optimizer")
    if not now_ns or not rows.any() or not step.on_gpu:
        return None
    ratio = FUSED_OPTIMIZER_PASSES / FOREACH_OPTIMIZER_PASSES
    kernel_ns = step.time_ns(rows)
    waits = now_ns > 1.15 * kernel_ns
    new_ns = max(kernel_ns * ratio, now_ns * ratio if waits else 0.0)
    return Estimate(
        latency_ns=step.latency_ns - now_ns + new_ns,
        host_decides=waits,
        evidence=(
            f"the optimizer takes {decimal(now_ns / 1e6, 3)} of "
            f"{decimal(step.latency_ns / 1e6, 3)} ms, "
            f"{step.count(rows):.0f} kernels of {decimal(kernel_ns / 1e6, 3)} ms",
        ),
    )


def _replayed_ns(step: StepWork, gpu_ns: float, launches: float) -> float:
    return gpu_ns + launches * GRAPH_NODE_GAP_NS + step.peaks.get("launch_ns", 0.0)


def _launch_ns(step: StepWork, num_launches: float, kept_ns: float) -> float:
    """Return the host time of a launch outside a part of the step that takes `kept_ns`."""
    if step.waits and num_launches:
        return (step.latency_ns - kept_ns) / num_launches
    return step.host_ns_per_launch or 0.0


def _floor_ns(step: StepWork, rate: float, bytes_rate: float, size: float) -> float:
    flops, moved = step.cost.get("flops"), step.cost.get("bytes")
    if not flops or not moved or flops / moved > rate / bytes_rate:
        return 0.0
    return float(moved) * size / bytes_rate * 1e9


def _weight_bytes(step: StepWork) -> float:
    """Return the weights' bytes: the cost model counts them once, 3 or 10 times by `mode`."""
    times = {"forward_backward": 3, "train_step": 10}.get(str(step.params.get("mode")), 1)
    return float(step.cost.get("bytes") or 0.0) / times


def head_dim(params: Mapping[str, Any]) -> float:
    """Return the width of an attention head, 0 where it is not known."""
    if params.get("head_dim"):
        return float(params["head_dim"])
    heads = params.get("heads")
    return float(params.get("d_model") or 0) / heads if heads else 0.0


def _attention_flops(params: Mapping[str, Any]) -> float:
    try:
        return 4.0 * params["batch"] * params["seq_len"] ** 2 * params["d_model"] * params["layers"]
    except KeyError:
        return 0.0


def _gpu_evidence(step: StepWork) -> str:
    return (
        f"{decimal(step.gpu_ns / 1e6, 3)} of {decimal(step.latency_ns / 1e6, 3)} ms are GPU time, "
        f"in {step.num_launches:.0f} operations"
    )


def _fused_evidence(step: StepWork) -> str:
    gpu_ns, launches = step.fused
    return (
        f"chains between products and attention leave {launches:.0f} operations and "
        f"{decimal(gpu_ns / 1e6, 3)} ms once fused"
    )


def _rate(flops: float, share: float, rate: float) -> str:
    return (
        f"{decimal(flops / 1e9, 3)} GFLOP at {100 * share:.0f} % "
        f"of the measured {decimal(rate / 1e12, 3)} TFLOP/s"
    )


def compiled_on_cpu(step: StepWork) -> Estimate | None:
    """`torch.compile` on a CPU: elementwise, copy and norm operators between products become one.

        latency = latency now * (others + fusible * groups / fusible operators) / all operators

    groups = products and attention calls + 1, at most the fusible operators; times are operators'
    own times in the trace. Operators that cost their call alone cost it once a group.
    """
    if step.on_gpu or step.operations.empty:
        return None
    fusible = step.operations["category"].isin(FUSIBLE | {Category.OTHER, Category.UNKNOWN})
    barriers = step.count(~fusible)
    num_fusible = step.count(fusible)
    kept = min(1.0, (barriers + 1) / num_fusible) if num_fusible else 1.0
    share = step.time_ns(fusible) / step.gpu_ns
    return Estimate(
        latency_ns=step.latency_ns * (1 - share + share * kept),
        host_decides=True,
        evidence=(
            f"{100 * share:.0f} % of the operators' time is in calls that can be fused, about "
            f"{1 / kept:.0f} into one",
        ),
    )


def larger_batch_on_cpu(step: StepWork, factor: int) -> Estimate | None:
    """`factor` times the batch on a CPU, where operators run one after the other.

        growing [ns] = min(time of products and attention, FLOPs / CPU_FLOPS_PER_S)
                       + time of other operators that take `FIXED_CPU_NS` a call or more
        latency      = latency now * (1 + (factor - 1) * growing / time of all operators)

    FLOPs of the cost model. What is left is the cost of calls and of threads that wait.
    """
    if step.on_gpu or step.operations.empty:
        return None
    heavy = step.is_product | (step.operations["category"] == Category.ATTENTION)
    long = step.operations["duration_ns"] >= FIXED_CPU_NS
    flops = float(step.cost.get("flops") or 0.0)
    heavy_ns = step.time_ns(heavy)
    by_rate_ns = flops / CPU_FLOPS_PER_S * 1e9 if flops else heavy_ns
    share = (min(heavy_ns, by_rate_ns) + step.time_ns(long & ~heavy)) / step.gpu_ns
    return Estimate(
        latency_ns=step.latency_ns * (1 + (factor - 1) * share),
        host_decides=True,
        evidence=(f"{100 * share:.0f} % of the operators' time grows with the batch",),
    )

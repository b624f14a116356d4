"""Mixture-of-experts routing: softmax and top-k over experts, and grouping the slots by expert.

`route` is the router alone. `route_sort` also groups the T * k slots by expert with a stable sort;
`route_fused` does the same with a counting sort in three Triton kernels (order and bounds are
identical). The experts' own products are left out: what grouping adds is the question.
FLOPs: softmax of T * E values at 5 operations each (max, subtract, exp, sum, divide) and a
comparison a value and pick. Bytes: logits read, weights and ids written, and for grouping the ids
read twice (count, place) and order written. Source: https://arxiv.org/abs/2101.03961 (routing),
https://arxiv.org/abs/2211.15841 (grouping slots by expert).

Ranges: route, regroup.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.errors import UserError
from workloads.kernels.availability import require_triton
from workloads.llama_params import COMPILE_MODES
from workloads.program import Context, Metric, Program, Timings, median
from workloads.spec import CommonParams, Cost, WorkloadSpec, param

IMPLEMENTATIONS = ("route", "route_sort", "route_fused")
MAX_FUSED_EXPERTS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(CommonParams):
    """Parameters of `moe_routing`."""

    tokens: int = param(
        32_768, doc="tokens", unit="tokens", minimum=1, maximum=2**24, smallest=256, basic=True
    )
    experts: int = param(64, doc="experts", minimum=1, maximum=4096, smallest=8, basic=True)
    top_k: int = param(2, doc="experts per token", minimum=1, maximum=64, basic=True)
    implementation: str = param(
        "route", doc="router alone, or with grouping", choices=IMPLEMENTATIONS, basic=True
    )
    compile: str = param("none", doc="torch.compile mode of the router", choices=COMPILE_MODES)

    def __post_init__(self) -> None:
        if self.top_k > self.experts:
            raise UserError(f"top_k: {self.top_k} is more than experts={self.experts}")
        if self.implementation == "route_fused" and self.experts > MAX_FUSED_EXPERTS:
            raise UserError(
                f"experts: {self.experts} is more than {MAX_FUSED_EXPERTS}, the most of route_fused"
            )


def cost(p: Params) -> Cost:
    """Return the work of one iteration; formulas and sources are in the module's docstring."""
    values, slots = p.tokens * p.experts, p.tokens * p.top_k
    moved = values * 4 + slots * (4 + 8)
    if p.implementation != "route":
        moved += slots * (2 * 8 + 4)
    return Cost(
        flops=float(values * (5 + p.top_k)),
        bytes=float(moved),
        flops_dtype="fp32",
        num_tokens=p.tokens,
    )


def estimate_memory_bytes(p: Params) -> int:
    """Return logits, probabilities, and ids with their sorted copies and workspace, in bytes."""
    return p.tokens * p.experts * 4 * 2 + p.tokens * p.top_k * (4 + 8) * 6


def build(p: Params, context: Context) -> Program:
    """Return the routing step on the context's device."""
    import torch

    from workloads.models.execution import begin_step, compiled
    from workloads.models.routing import route

    logits = torch.randn((p.tokens, p.experts), device=context.device)
    group = _grouping(p, context)
    router = compiled(route, p.compile)
    error = _check(p, group, logits)

    def step() -> None:
        begin_step(p.compile)
        with context.ranges.phase("route"):
            _, ids = router(logits, p.top_k)
        if group is not None:
            with context.ranges.phase("regroup"):
                group(ids, p.experts)

    def metrics(timings: Timings) -> list[Metric]:
        reported = [Metric(name="max_abs_error", value=error, unit="")]
        added_ns = median(timings.phase_samples_ns.get("regroup", []))
        if added_ns is not None:
            reported.append(
                Metric(name="regroup_time", value=added_ns / 1e6, unit="ms", phase="regroup")
            )
        return reported

    return Program(step=step, compile_mode=p.compile, metrics=metrics)


Group = Callable[[Any, int], tuple[Any, Any]]


def _grouping(p: Params, context: Context) -> Group | None:
    from workloads.models.routing import regroup_by_sort

    if p.implementation == "route":
        return None
    if p.implementation == "route_sort":
        return regroup_by_sort
    require_triton(on_gpu=context.on_gpu, instead="implementation=route_sort")
    from workloads.kernels.moe_regroup import regroup

    return regroup


def _check(p: Params, group: Group | None, logits: Any) -> float:
    """Return the weights' largest error against float64, or 1 when the grouping is wrong."""
    from workloads.models.routing import regroup_by_sort, route

    weights, ids = route(logits, p.top_k)
    truth = logits.double().softmax(-1).gather(-1, ids)
    truth = truth / truth.sum(-1, keepdim=True)
    if group is not None:
        pairs = zip(group(ids, p.experts), regroup_by_sort(ids.cpu(), p.experts), strict=True)
        if not all(bool((ours.cpu().long() == right.long()).all()) for ours, right in pairs):
            return 1.0
    return (weights.double() - truth).abs().max().item()


WORKLOAD = WorkloadSpec(
    name="moe_routing",
    title="Mixture-of-experts routing",
    about="Softmax, top-k and grouping of slots by expert: what does grouping add?",
    source="https://arxiv.org/abs/2101.03961",
    params=Params,
    presets={"64-experts-top2": {"experts": 64, "top_k": 2}},
    default_preset="64-experts-top2",
    implementations=IMPLEMENTATIONS,
    phases=("route", "regroup"),
    modes=("forward",),
    build=build,
    cost=cost,
    estimate_memory_bytes=estimate_memory_bytes,
)

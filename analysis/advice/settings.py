"""Experiments for a program of the user: settings from outside, and lines to change inside.

A setting is an environment variable: the program stays as it is. Each model takes what the run's
own step shows the setting would remove; a step without it gets no such experiment. Lines to change
inside use the models of our own workloads, with records of their own: nothing is known of how
these do for other programs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from analysis.advice import models
from analysis.advice.constants import FOREACH_OPTIMIZER_PASSES, FUSED_OPTIMIZER_PASSES
from analysis.advice.models import Estimate
from analysis.advice.step_work import StepWork
from core.numbers import decimal
from core.program_settings import checked_settings

MIN_SHARE = 0.01
"""A change that could save less than this share of the step is not worth a run."""
_ALLOCATION = r"(?i)^(?:cuda|cu)(?:Malloc|MemAlloc|Free|MemFree|MemCreate|MemMap|MemUnmap)"
_LOADING = r"(?i)(?:ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel)"
_INDUCTOR = r"^triton_(?:poi|red|per|tem|for|mm|unk)_"
_OPTIMIZER = r"(?i)multi_tensor_apply|\badam|FusedAdam|sgd"
_FUSED_OPTIMIZER = r"(?i)Fused(?:Adam|Sgd|Adagrad)"
OTHER_OPERATIONS_FRAC = 0.1
"""A capture holds this much more than its steps at the most, or a step's operations are unknown."""
_FP32_PRODUCT = r"(?i)sgemm|ffma|_f32f32_|gemmSN|f32f32_f32f32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A change of a program of the user."""

    name: str
    title: str
    environment: Mapping[str, str]
    lines: tuple[str, ...]
    "Lines of the program to change, where no setting does it."
    estimate: Estimate
    kind: str = "setting"


def settings_for(
    step: StepWork,
    api_calls: pd.DataFrame,
    transfers: pd.DataFrame,
    peaks: Mapping[str, float],
    *,
    has_graphs: bool = False,
    step_ns: float | None = None,
) -> list[Setting]:
    """Return what could be changed around or in a program of the user, largest gain first.

    `has_graphs`: whether it replays CUDA graphs; `step_ns`: time of GPU operations of a regular
    step, None where the capture was not cut into steps.
    """
    candidates = (
        *code_changes(step, has_graphs=has_graphs, step_ns=step_ns),
        expandable_segments(step, api_calls),
        tf32_override(step),
        eager_loading(step, api_calls),
        pinned_copies(step, transfers, peaks),
    )
    faster = [c for c in candidates if c and c.estimate.latency_ns <= step.latency_ns * 0.99]
    return sorted(faster, key=lambda c: c.estimate.latency_ns)


def code_changes(
    step: StepWork, *, has_graphs: bool, step_ns: float | None
) -> Iterator[Setting | None]:
    """Yield CUDA graph, `torch.compile` and fused optimizer, each with the lines to change.

    The models are those of `analysis.advice.models`. A graph and `reduce-overhead` only of steps
    without an optimizer; `torch.compile` of a training step only where the GPU decides.
    """
    is_whole = step_ns and abs(step.gpu_ns / step_ns - 1) < OTHER_OPERATIONS_FRAC
    if not step.on_gpu or step.operations.empty or not is_whole:
        return
    names = step.operations["name"]
    is_compiled = bool(names.str.contains(_INDUCTOR).any())
    trains = bool(names.str.contains(_OPTIMIZER).any()) or bool(step.in_phase("optimizer").any())
    if not trains and not has_graphs:
        if step.waits:
            yield _change("graph", "CUDA graph", models.graph_replay(step), GRAPH_LINES)
        compiled = models.compiled_graph(step, is_compiled=is_compiled)
        title = "torch.compile with CUDA graphs"
        yield _change("compile_graph", title, compiled, REDUCE_OVERHEAD_LINES)
    if not is_compiled and not has_graphs:
        fused = models.compiled(step)
        if fused and not (trains and fused.host_decides):
            yield _change("compile", "torch.compile", fused, ("model = torch.compile(model)",))
    yield _change("optimizer", "Fused optimizer", fused_optimizer(step), FUSED_LINES)


GRAPH_LINES = (
    "with torch.cuda.graph(graph := torch.cuda.CUDAGraph()): output = model(static_input)",
    "static_input.copy_(batch); graph.replay()",
)
REDUCE_OVERHEAD_LINES = ('model = torch.compile(model, mode="reduce-overhead")',)
FUSED_LINES = ("optimizer = torch.optim.AdamW(..., fused=True)",)


def _change(
    kind: str, title: str, estimate: Estimate | None, lines: tuple[str, ...]
) -> Setting | None:
    if estimate is None:
        return None
    return Setting(name=kind, kind=f"{kind} (own program)", title=title, environment={},
                   lines=lines, estimate=estimate)  # fmt: skip


def fused_optimizer(step: StepWork) -> Estimate | None:
    """An optimizer that makes its step in one kernel for many tensors, as AdamW(fused=True).

        latency [ns] = latency now - time of its kernels * (1 - FUSED_OPTIMIZER_PASSES
                       / FOREACH_OPTIMIZER_PASSES)

    Of kernels that work on lists of tensors and are not fused yet; None where the host decides.
    """
    names = step.operations["name"]
    rows = names.str.contains("multi_tensor_apply") & ~names.str.contains(_FUSED_OPTIMIZER)
    if step.waits or not rows.any():
        return None
    ns = step.time_ns(rows)
    return _saved(
        step,
        ns * (1 - FUSED_OPTIMIZER_PASSES / FOREACH_OPTIMIZER_PASSES),
        f"{step.count(rows):.0f} kernels over lists of tensors take {decimal(ns / 1e6, 3)} of "
        f"{decimal(step.latency_ns / 1e6, 3)} ms; counted as AdamW's",
    )


def _saved(step: StepWork, ns: float, evidence: str) -> Estimate | None:
    """Return the step without a time, none where it is under `MIN_SHARE` of the step.

    latency [ns] = latency now - time of it in a step, at most 90 % of the step

    """
    if ns < MIN_SHARE * step.latency_ns:
        return None
    return Estimate(
        latency_ns=step.latency_ns - min(ns, 0.9 * step.latency_ns),
        host_decides=True,
        evidence=(evidence,),
    )


def _setting(
    name: str,
    title: str,
    estimate: Estimate | None,
    environment: Mapping[str, str],
    lines: tuple[str, ...] = (),
) -> Setting | None:
    if estimate is None:
        return None
    return Setting(
        name=name,
        title=title,
        environment=checked_settings(environment),
        lines=lines,
        estimate=estimate,
    )


def _calls_ns(step: StepWork, api_calls: pd.DataFrame, pattern: str) -> tuple[float, float]:
    if api_calls.empty:
        return 0.0, 0.0
    rows = api_calls[api_calls["name"].str.contains(pattern)]
    return float(rows["total_ns"].sum()) / step.num_steps, float(rows["count"].sum())


def expandable_segments(step: StepWork, api_calls: pd.DataFrame) -> Setting | None:
    """PYTORCH_CUDA_ALLOC_CONF: segments that grow, so that steps ask the driver for no memory.

        latency [ns] = latency now - time in the driver's allocation calls of a step

    Times of calls are those of the profiled capture.
    """
    ns, count = _calls_ns(step, api_calls, _ALLOCATION)
    evidence = (
        f"{count:.0f} calls of the driver's allocator take {decimal(ns / 1e6, 3)} ms of a "
        f"{decimal(step.latency_ns / 1e6, 3)} ms step (profiled)"
    )
    estimate = _saved(step, ns, evidence)
    return _setting(
        "alloc_conf",
        "Allocator with expandable segments",
        estimate,
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        (),
    )


def tf32_override(step: StepWork) -> Setting | None:
    """NVIDIA_TF32_OVERRIDE: fp32 products by tensor cores, from outside.

        latency [ns] = latency now - time of fp32 products * (1 - rate(fp32) / rate(tf32))

    Products whose kernels' names say fp32 arithmetic; rates are the GPU's measured peaks. None
    where the host decides.
    """
    fp32, tf32 = step.flops_rate("fp32"), step.flops_rate("tf32")
    if not fp32 or not tf32 or step.waits or step.operations.empty:
        return None
    rows = step.is_product & step.operations["name"].str.contains(_FP32_PRODUCT)
    ns = step.time_ns(rows)
    estimate = _saved(
        step,
        ns * (1 - fp32 / tf32),
        f"fp32 products take {decimal(ns / 1e6, 3)} of {decimal(step.latency_ns / 1e6, 3)} "
        f"ms; measured rates: "
        f"fp32 {decimal(fp32 / 1e12, 3)}, tf32 {decimal(tf32 / 1e12, 3)} TFLOP/s. Ten bits "
        f"of mantissa are left",
    )
    return _setting(
        "tf32_override",
        "TF32 for fp32 products",
        estimate,
        {"NVIDIA_TF32_OVERRIDE": "1"},
        ('torch.set_float32_matmul_precision("high")',),
    )


def eager_loading(step: StepWork, api_calls: pd.DataFrame) -> Setting | None:
    """CUDA_MODULE_LOADING=EAGER: kernels are loaded at the start, not when first launched.

        latency [ns] = latency now - time in loading calls of a recorded step

    Data loaded before the capture started is not in it.
    """
    ns, count = _calls_ns(step, api_calls, _LOADING)
    estimate = _saved(
        step,
        ns,
        f"{count:.0f} calls that load code take {decimal(ns / 1e6, 3)} ms of a recorded step",
    )
    return _setting(
        "module_loading",
        "Load kernels at the start",
        estimate,
        {"CUDA_MODULE_LOADING": "EAGER"},
        (),
    )


def pinned_copies(
    step: StepWork, transfers: pd.DataFrame, peaks: Mapping[str, float]
) -> Setting | None:
    """Copies from pinned memory, beside the kernels.

        latency [ns] = latency now - time of pageable copies + their bytes / pinned rate
        pinned rate  = `htod_bytes_per_s` of the GPU's peaks, else the run's own pinned copies' rate

    Of copies between pageable memory and the GPU.
    """
    if transfers.empty:
        return None
    rows = transfers[
        transfers["kind"].isin(["HtoD", "DtoH"])
        & ((transfers["src"] == "pageable") | (transfers["dst"] == "pageable"))
    ].dropna(subset=["total_ns"])
    pinned = transfers[(transfers["src"] == "pinned") | (transfers["dst"] == "pinned")]
    rate = peaks.get("htod_bytes_per_s") or 0.0
    if not rate and not pinned.empty and pinned["total_ns"].sum():
        rate = float(pinned["bytes"].sum()) / float(pinned["total_ns"].sum()) * 1e9
    if rows.empty or not rate:
        return None
    ns = float(rows["total_ns"].sum()) / step.num_steps
    num_bytes = float(rows["bytes"].sum()) / step.num_steps
    estimate = _saved(
        step,
        ns - num_bytes / rate * 1e9,
        f"pageable copies of {decimal(num_bytes / 1e6, 3)} MB take {decimal(ns / 1e6, 3)} "
        f"ms of a step, at "
        f"{decimal(num_bytes / ns, 3)} GB/s; pinned ones reach {decimal(rate / 1e9, 3)} GB/s",
    )
    return _setting(
        "pinned_copies",
        "Pinned host memory",
        estimate,
        {},
        (
            "DataLoader(..., pin_memory=True)",
            'batch = batch.to("cuda", non_blocking=True)',
        ),
    )

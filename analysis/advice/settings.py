"""Experiments for a program of the user: settings from outside, and lines to change inside.

A setting is an environment variable: the program stays as it is. Each model takes what the run's
own step shows the setting would remove; a step without it gets no such experiment. Settings are
those of PyTorch, so that a program without it gets none. Lines to change inside use the models of
our own workloads, with records of their own: nothing is known of how these do for other programs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pandas as pd

from analysis.advice import models
from analysis.advice.constants import (
    CPU_BANDWIDTH_THREADS,
    FOREACH_OPTIMIZER_PASSES,
    FUSED_OPTIMIZER_PASSES,
)
from analysis.advice.models import Estimate
from analysis.advice.step_work import StepWork
from analysis.classify import Category
from core.numbers import decimal
from core.program_settings import checked_settings

MUCH_RESERVED = 1.3
"""From this many times what is in use on, the allocator's reserve is worth a word."""
MIN_SHARE = 0.01
"""A change that could save less than this share of the step is not worth a run."""
_ALLOCATION = r"^(?:cudaMalloc|cudaFree|cuMemAlloc|cuMemFree)(?:_v\d+)*$"
_FREE = r"^(?:cudaFree|cuMemFree)(?:_v\d+)*$"
_INDUCTOR = r"^triton_(?:poi|red|per|tem|for|mm|unk)_"
_OPTIMIZER = r"(?i)multi_tensor_apply|\badam|FusedAdam|sgd"
_FUSED_OPTIMIZER = r"(?i)Fused(?:Adam|Sgd|Adagrad)"
OTHER_OPERATIONS_FRAC = 0.1
"""A capture holds this much more than its steps at the most, or a step's operations are unknown."""
_FP32_PRODUCT = r"(?i)sgemm|ffma|f32f32_f32f32|gemmSN\w*<float"
_THREADS = re.compile(r"(?P<threads>\d{1,4}) of (?P<cores>\d{1,4}) cores, by OMP_NUM_THREADS")
_TENSOR_CORES = r"(?i)tf32|tensorop|bf16|f16|h16|s1688|s16816"
"""In names of products that run on tensor cores already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A change of a program of the user."""

    name: str
    title: str
    environment: Mapping[str, str]
    lines: tuple[str, ...]
    "Lines of the program to change, where no setting does it."
    estimate: Estimate
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a run tells of a program of the user, beside its step."""

    settings: Mapping[str, str] = field(default_factory=dict)
    "Variables of the closed list that it ran with."
    environment: Mapping[str, str] = field(default_factory=dict)
    "Versions, and the CPU threads that PyTorch used."
    api_calls: pd.DataFrame = field(default_factory=pd.DataFrame)
    transfers: pd.DataFrame = field(default_factory=pd.DataFrame)
    idle_host: pd.DataFrame = field(default_factory=pd.DataFrame)
    num_alloc_retries: int = 0
    "How often PyTorch's allocator found the memory full in a clean process."
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    "Peaks: what its tensors took, and what PyTorch's allocator held for them; 0 where unknown."
    has_graphs: bool = False
    "Whether it replays CUDA graphs."
    step_ns: float | None = None
    "Time of GPU operations of a regular step; None where the capture was not cut into steps."


def settings_for(step: StepWork, program: Program, peaks: Mapping[str, float]) -> list[Setting]:
    """Return what could be changed around or in a program of the user, largest gain first."""
    candidates = (
        *code_changes(step, has_graphs=program.has_graphs, step_ns=program.step_ns),
        expandable_segments(step, program),
        tf32_override(step, program),
        more_threads(step, program),
        pinned_copies(step, program.transfers, peaks),
    )
    faster = [c for c in candidates if c and c.estimate.latency_ns <= step.latency_ns * 0.99]
    return sorted(faster, key=lambda c: c.estimate.latency_ns)


def code_changes(
    step: StepWork, *, has_graphs: bool, step_ns: float | None
) -> Iterator[Setting | None]:
    """Yield CUDA graph, `torch.compile` and fused optimizer, each with the lines to change.

    The models are those of `analysis.advice.models`. A graph and `reduce-overhead` only of steps
    without an optimizer; `torch.compile` only where the GPU decides.
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
        if fused and not fused.host_decides:
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
    return _setting(kind, f"{kind} (own program)", title, estimate, {}, lines)


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


def _memory_evidence(program: Program) -> Iterator[str]:
    """Yield what says that the allocator's memory is in pieces that do not fit."""
    if program.num_alloc_retries:
        yield f"times that memory was full: {program.num_alloc_retries}"
    if program.reserved_bytes > MUCH_RESERVED * program.allocated_bytes > 0:
        reserved, used = (
            decimal(n / 1e9, 3) for n in (program.reserved_bytes, program.allocated_bytes)
        )
        yield f"{reserved} GB are reserved for at most {used} GB in use"


def _saved(step: StepWork, ns: float, *evidence: str) -> Estimate | None:
    """Return the step without a time, none where it is under `MIN_SHARE` of the step.

    latency [ns] = latency now - time of it in a step, at most 90 % of the step

    """
    if ns < MIN_SHARE * step.latency_ns:
        return None
    return Estimate(
        latency_ns=step.latency_ns - min(ns, 0.9 * step.latency_ns),
        host_decides=True,
        evidence=evidence,
    )


def is_pytorch(step: StepWork, program: Program) -> bool:
    """Say whether the program is one of PyTorch: its environment says so, or its kernels do."""
    return "torch" in program.environment or bool(
        step.operations["name"].str.contains("at::native").any()
    )


def expandable_segments(step: StepWork, program: Program) -> Setting | None:
    """PYTORCH_CUDA_ALLOC_CONF: segments that grow, so that steps ask the driver for no memory.

        latency [ns] = latency now - GPU idle time of a step while its host is in cudaMalloc or
                       cudaFree

    Idle time of the profiled capture's regular steps. None where memory is given back though it was
    never full: the program empties the cache itself, and segments that grow would go as well.
    """
    idle, calls = program.idle_host, program.api_calls
    if not step.on_gpu or idle.empty or calls.empty or not is_pytorch(step, program):
        return None
    if "backend:cudaMallocAsync" in " ".join(program.settings.values()):
        return None
    if calls["name"].str.contains(_FREE).any() and not program.num_alloc_retries:
        return None
    rows = idle["call"].fillna("").astype(str).str.contains(_ALLOCATION)
    ns = float(idle.loc[rows, "step_idle_ns"].sum())
    count = float(calls.loc[calls["name"].str.contains(_ALLOCATION), "count"].sum())
    estimate = _saved(
        step,
        ns,
        f"the GPU idles for {decimal(ns / 1e6, 3)} ms of a {decimal(step.latency_ns / 1e6, 3)} ms "
        f"step while the host asks the driver for memory or gives it back ({count:.0f} calls in "
        "the profiled capture)",
        *_memory_evidence(program),
    )
    name = "PYTORCH_ALLOC_CONF"
    name = name if name in program.settings else "PYTORCH_CUDA_ALLOC_CONF"
    return _setting(
        "alloc_conf",
        "allocator",
        "Allocator with expandable segments",
        estimate,
        {name: "expandable_segments:True"},
    )


def tf32_override(step: StepWork, program: Program) -> Setting | None:
    """TORCH_ALLOW_TF32_CUBLAS_OVERRIDE: fp32 products by tensor cores, from outside.

        saved [ns]   = time of fp32 products * (1 - rate(fp32) / rate(tf32))
        host [ns]    = launches * host time per launch
        latency [ns] = max(latency now - saved, host)

    Products longer than 3 us whose kernels' names say fp32 arithmetic; rates are the GPU's measured
    peaks. None where the host decides.
    """
    fp32, tf32 = step.flops_rate("fp32"), step.flops_rate("tf32")
    if not fp32 or not tf32 or not step.on_gpu or step.waits or step.operations.empty:
        return None
    if not is_pytorch(step, program) or program.settings.get("NVIDIA_TF32_OVERRIDE") == "0":
        return None
    names = step.operations["name"]
    rows = step.is_product & names.str.contains(_FP32_PRODUCT) & ~names.str.contains(_TENSOR_CORES)
    rows &= step.operations["duration_ns"] > models.FIXED_NS
    ns = step.time_ns(rows)
    gpu_ns = step.latency_ns - ns * (1 - fp32 / tf32)
    host_ns = step.num_launches * (step.host_ns_per_launch or 0.0)
    latency_ns = max(gpu_ns, host_ns)
    if step.latency_ns - latency_ns < MIN_SHARE * step.latency_ns:
        return None
    estimate = Estimate(
        latency_ns=latency_ns,
        host_decides=host_ns > gpu_ns,
        evidence=(
            f"fp32 products take {decimal(ns / 1e6, 3)} of {decimal(step.latency_ns / 1e6, 3)} ms",
            f"measured rates: fp32 {decimal(fp32 / 1e12, 3)}, tf32 {decimal(tf32 / 1e12, 3)} "
            f"TFLOP/s; ten bits of mantissa are left",
        ),
    )
    return _setting(
        "tf32_override",
        "tf32 (own program)",
        "TF32 for fp32 products",
        estimate,
        {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
        ('torch.set_float32_matmul_precision("high")',),
    )


def more_threads(step: StepWork, program: Program) -> Setting | None:
    """OMP_NUM_THREADS: as many threads as the process has cores, on a CPU.

        products and attention [ns] = time * threads / cores
        other operators        [ns] = time * threads / min(cores, CPU_BANDWIDTH_THREADS)
        latency [ns]                = latency now * (these + operators as they are) / all operators

    Operators that take `FIXED_CPU_NS` a call or more; the rest stays. Only where OMP_NUM_THREADS
    holds the threads back, in the user's shell or by a launcher; cores of a rank are its share.
    Other programs must leave the cores free: on a loaded host more threads wait for each other.
    """
    known = _THREADS.fullmatch(program.environment.get("threads", ""))
    if step.on_gpu or step.operations.empty or known is None:
        return None
    threads, cores = int(known["threads"]), int(known["cores"])
    if threads >= cores:
        return None
    heavy = step.is_product | (step.operations["category"] == Category.ATTENTION)
    long = step.operations["duration_ns"] >= models.FIXED_CPU_NS
    heavy_ns, other_ns = step.time_ns(long & heavy), step.time_ns(long & ~heavy)
    fewest = max(threads, min(cores, CPU_BANDWIDTH_THREADS))
    saved = heavy_ns * (1 - threads / cores) + other_ns * (1 - threads / fewest)
    share = (heavy_ns + other_ns) / step.gpu_ns
    estimate = Estimate(
        latency_ns=step.latency_ns * (1 - saved / step.gpu_ns),
        host_decides=True,
        evidence=(
            f"PyTorch used {threads} of {cores} cores, as OMP_NUM_THREADS says; others must leave "
            "them free",
            f"{100 * share:.0f} % of the operators' time is in calls long enough for more threads",
        ),
    )
    return _setting(
        "threads", "threads", f"{cores} threads", estimate, {"OMP_NUM_THREADS": str(cores)}
    )


def _setting(
    name: str,
    kind: str,
    title: str,
    estimate: Estimate | None,
    environment: Mapping[str, str],
    lines: tuple[str, ...] = (),
) -> Setting | None:
    if estimate is None:
        return None
    return Setting(
        name=name,
        kind=kind,
        title=title,
        environment=checked_settings(environment),
        lines=lines,
        estimate=estimate,
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
        "pinned_copies",
        "Pinned host memory",
        estimate,
        {},
        (
            "DataLoader(..., pin_memory=True)",
            'batch = batch.to("cuda", non_blocking=True)',
        ),
    )

"""The experiments of a run: which changes apply, what each should give, and whether to believe it.

A kind is what has one record: `graph`, `compile`, `compile_graph`, `dtype`, `tf32`, `attention`,
`attention_triton`, `batch`, `batch_training`, `optimizer`, `allocator`, `threads`, `pinned_copies`;
`compile_host` is `compile` where the host decides; with ` (own program)` behind it for what a
program of the user gets of these, and ` (CPU)` on a CPU.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from analysis.advice import models
from analysis.advice.constants import MODEL_VERSION, WIDTH
from analysis.advice.models import Estimate
from analysis.advice.score import Record
from analysis.advice.settings import Program, settings_for
from analysis.advice.step_work import StepWork, step_work
from analysis.runview import RunView
from analysis.verdict.facts import GRAPH_MODES
from core.numbers import value_text
from core.program_settings import NO_SETTINGS, parse_settings, with_settings

OFFERED, UNTRIED, WITHHELD = "offered", "untried", "withheld"
BATCH_FACTORS = (2, 4)
_SMALLER = {
    "fp32": ("tf32", "bf16", "fp16"),
    "tf32": ("bf16", "fp16"),
    "bf16": ("fp8",),
    "fp16": ("fp8",),
}
TRAINING_MODES = ("forward_backward", "train_step")
MIN_GAIN_FRAC = 0.03
"""A smaller gain than this is within what runs differ by anyway: not worth a run."""
NO_MODEL: Mapping[str, str] = {
    "attention=compiled": "inductor may replace the naive code by a fused kernel or keep it: "
    "nothing in the run says which",
    "quantised weights": "what dequantising costs is not in the run: its kernels are others",
    "torch.compile of int8 weights": "inductor takes the dequantisation into the product: the one "
    "pair measured was missed by 96 %",
    "compile=default of a training step whose host decides": "the pair that tried it was missed "
    "by half: host time of a compiled backward pass is not in the run",
    "compile=reduce-overhead of a training step": "the optimizer stays outside the graph; no pair "
    "tells what that costs",
    "fused attention with heads narrower than 128": "what share of the rate it reaches was not "
    "learned: the one pair measured was missed by 27 %",
    "torch.compile of an own program whose host decides": "a launch of a compiled program took 1 "
    "to 2 times as long as one of the same program as it was, on pairs of our own workloads",
    "CUBLAS_WORKSPACE_CONFIG": "it lets cuBLAS choose other kernels: which, and how fast they are, "
    "is not in the run",
    "CUDA_MODULE_LOADING=EAGER": "it moves the loading of kernels from their first launch to the "
    "start of the program: the steps that are measured come after both",
    "NVIDIA_TF32_OVERRIDE=1": "NVIDIA documents 0 alone, which turns TF32 off; for PyTorch there "
    "is TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "other options of PyTorch's allocator": "what they save follows from the order of all "
    "allocations since the start, which is not in the run",
}
"""Changes that are not offered, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted latency."""

    latency_ns: float
    low_ns: float
    high_ns: float
    decided_by: str
    "`gpu` or `host`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A change, what it should give, and the record of its kind."""

    name: str
    "Names it on the command line: `compile=default`, `batch=8`."
    kind: str
    title: str
    params: Mapping[str, Any] = field(default_factory=dict)
    "Params of the workload to change; {} where no job can make the change."
    environment: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    "Lines of the user's program to change."
    prediction: Prediction
    gain_frac: float
    "Share of the latency (of a larger batch: of the latency a sequence) that it should save."
    evidence: tuple[str, ...]
    status: str
    "`offered`, `untried` (no outcome of this kind yet) or `withheld` (its record is poor)."
    record: Record | None = None
    model_version: int = MODEL_VERSION

    @property
    def is_worth_a_run(self) -> bool:
        return self.gain_frac >= MIN_GAIN_FRAC


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    kind: str
    title: str
    params: Mapping[str, Any]
    model: Callable[[], Estimate | None]
    "Makes the estimate: only of a change that is wanted, since it looks at every operation."
    factor: int = 1

    @property
    def name(self) -> str:
        return ",".join(f"{k}={value_text(v)}" for k, v in self.params.items())


def experiments_of(
    view: RunView,
    choices: Mapping[str, Sequence[Any]],
    records: Mapping[str, Record],
    is_valid: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> list[Experiment]:
    """Return the changes that apply to a run, the largest gain first.

    `choices` are the values that the workload's fields may take (empty for a program of the user),
    `is_valid` says whether all its params together are allowed. [] without a clean latency.
    """
    step = step_work(view)
    if step is None:
        return []
    experiments = [
        _experiment(
            step, change.name, change.kind, change.title, estimate, records,
            params=change.params,
            gain_frac=1 - estimate.latency_ns / step.latency_ns / change.factor,
        )
        for change in _changes(step, choices)
        if is_valid({**step.params, **change.params}) and (estimate := change.model())
    ]  # fmt: skip
    if view.run.workload in (None, "command"):
        experiments += _of_own_program(view, step, records, is_valid)
    order = (OFFERED, UNTRIED, WITHHELD)
    return sorted(
        experiments, key=lambda e: (not e.is_worth_a_run, order.index(e.status), -e.gain_frac)
    )


def _of_own_program(
    view: RunView,
    step: StepWork,
    records: Mapping[str, Record],
    is_valid: Callable[[Mapping[str, Any]], bool],
) -> Iterable[Experiment]:
    """Yield what a program of the user could change; a setting that its run has is none."""
    has_job = view.run.workload == "command"
    now = str(step.params.get("settings") or NO_SETTINGS) if has_job else NO_SETTINGS
    program = Program(
        settings=parse_settings(now),
        environment=view.run.environment,
        api_calls=view.api_calls,
        transfers=view.transfers,
        idle_host=view.by_step.idle_host,
        num_alloc_retries=int(view.summary.get("num_alloc_retries") or 0),
        allocated_bytes=int(view.summary.get("allocated_bytes") or 0),
        reserved_bytes=int(view.summary.get("reserved_bytes") or 0),
        has_graphs=bool(view.summary.get("num_graph_launches")),
        step_ns=_step_ns(view.by_step.facts),
    )
    for s in settings_for(step, program, view.peaks):
        changed = with_settings(now, s.environment)
        if s.environment and changed == with_settings(now, {}):
            continue
        params = {"settings": changed} if s.environment and has_job else {}
        yield _experiment(
            step, s.name, s.kind, s.title, s.estimate, records,
            params=params if is_valid({**step.params, **params}) else {},
            environment=s.environment, lines=s.lines,
            gain_frac=1 - s.estimate.latency_ns / step.latency_ns,
        )  # fmt: skip


def _step_ns(facts: Mapping[str, Any]) -> float | None:
    """Return the time of GPU operations of a regular step."""
    if not facts.get("count"):
        return None
    return sum(float(facts.get(k) or 0.0) for k in ("kernel_ns", "graph_ns", "transfer_ns"))


def _changes(step: StepWork, choices: Mapping[str, Sequence[Any]]) -> Iterable[_Change]:
    params = step.params
    yield from _graph_changes(step, choices)
    yield from _compile_changes(step, choices)
    for dtype in _SMALLER.get(str(params.get("dtype")), ()):
        if dtype in choices.get("dtype", ()):
            model = partial(models.other_dtype, step, dtype, is_autocast="mlp" in params)
            kind = "tf32" if dtype == "tf32" else "dtype"
            yield _Change(kind=kind, title=f"dtype {dtype}", params={"dtype": dtype}, model=model)
    for name in ("attention", "implementation"):
        for choice in ("sdpa", "triton") if params.get(name) == "naive" else ():
            if choice in choices.get(name, ()):
                kind = "attention" if choice == "sdpa" else "attention_triton"
                yield _Change(kind=kind, title=f"attention by {choice}",
                              params={name: choice},
                              model=partial(models.fused_attention, step, choice))  # fmt: skip
    if params.get("fused_optimizer") is False and "fused_optimizer" in choices:
        yield _Change(kind="optimizer", title="fused optimizer",
                      params={"fused_optimizer": True},
                      model=partial(models.fused_optimizer, step))  # fmt: skip
    larger = models.larger_batch if step.on_gpu else models.larger_batch_on_cpu
    trains = step.on_gpu and params.get("mode") in TRAINING_MODES
    for factor in BATCH_FACTORS if isinstance(params.get("batch"), int) else ():
        yield _Change(kind="batch_training" if trains else "batch",
                      title=f"{factor} times the batch", factor=factor,
                      params={"batch": params["batch"] * factor},
                      model=partial(larger, step, factor))  # fmt: skip


def _graph_changes(step: StepWork, choices: Mapping[str, Sequence[Any]]) -> Iterable[_Change]:
    params = step.params
    if params.get("cuda_graph") is False and "cuda_graph" in choices:
        yield _Change(kind="graph", title="CUDA graph", params={"cuda_graph": True},
                      model=partial(models.graph_replay, step))  # fmt: skip
    if params.get("kv_cache") == "argument" and params.get("compile") in GRAPH_MODES:
        yield _Change(kind="compile_graph", title="KV cache that lets CUDA graphs be used",
                      params={"kv_cache": "buffer"},
                      model=partial(models.compiled_graph, step, is_compiled=True))  # fmt: skip


def _compile_changes(step: StepWork, choices: Mapping[str, Sequence[Any]]) -> Iterable[_Change]:
    now = step.params.get("compile")
    is_int8 = step.params.get("weights") == "int8"
    if now not in ("none", "default") or step.params.get("cuda_graph") or is_int8:
        return
    for mode in choices.get("compile", ()):
        title = f"torch.compile {mode}"
        if mode == "default" and now == "none":
            model = models.compiled if step.on_gpu else models.compiled_on_cpu
            yield _Change(kind="compile", title=title, params={"compile": mode},
                          model=partial(model, step))  # fmt: skip
        if mode in GRAPH_MODES and step.params.get("kv_cache") != "argument":
            graph = partial(models.compiled_graph, step, is_compiled=now != "none")
            yield _Change(kind="compile_graph", title=title, params={"compile": mode}, model=graph)


def _experiment(
    step: StepWork,
    name: str,
    kind: str,
    title: str,
    estimate: Estimate,
    records: Mapping[str, Record],
    **rest: Any,
) -> Experiment:
    if kind == "compile" and step.on_gpu and estimate.host_decides:
        kind = "compile_host"
    kind = kind if step.on_gpu else f"{kind} (CPU)"
    record = records.get(kind)
    known = record if record and record.is_known else None
    return Experiment(
        name=name,
        kind=kind,
        title=title,
        prediction=predict(step, estimate, known),
        evidence=estimate.evidence,
        status=UNTRIED if known is None else WITHHELD if known.is_poor else OFFERED,
        record=record,
        **rest,
    )


def predict(step: StepWork, estimate: Estimate, record: Record | None) -> Prediction:
    """Return the estimate with its interval: latency / e^w to latency * e^w.

    w = WIDTH.gpu, or WIDTH.host + variation of the base where the host decides
    w + WIDTH.untried without a record; else the larger of w and the record's width
    """
    width = WIDTH.host + step.variation if estimate.host_decides else WIDTH.gpu
    width = max(width, record.width) if record else width + WIDTH.untried
    return Prediction(
        latency_ns=estimate.latency_ns,
        low_ns=estimate.latency_ns / math.exp(width),
        high_ns=estimate.latency_ns * math.exp(width),
        decided_by="host" if estimate.host_decides else "gpu",
    )


def has_narrow_heads(params: Mapping[str, Any]) -> bool:
    """Say whether attention is naive and its heads are of a width that no model covers."""
    naive = "naive" in (params.get("attention"), params.get("implementation"))
    return naive and models.head_dim(params) < models.MIN_HEAD_DIM


def not_offered(
    workload: str | None,
    params: Mapping[str, Any],
    choices: Mapping[str, Sequence[Any]],
    *,
    is_cpu: bool = False,
) -> dict[str, str]:
    """Return the changes that a run could get and that no model reaches, with the reason."""
    is_training = params.get("mode") in TRAINING_MODES
    eager = params.get("compile") == "none"
    is_own_on_gpu = workload in (None, "command") and not is_cpu
    concerns = {
        "attention=compiled": "compiled" in choices.get("implementation", ())
        and params.get("implementation") == "naive",
        "quantised weights": "weights" in choices and params.get("weights") == "native",
        "torch.compile of int8 weights": eager and params.get("weights") == "int8",
        "compile=default of a training step whose host decides": is_training and eager,
        "compile=reduce-overhead of a training step": is_training and eager,
        "fused attention with heads narrower than 128": has_narrow_heads(params),
        "torch.compile of an own program whose host decides": is_own_on_gpu,
        "CUBLAS_WORKSPACE_CONFIG": is_own_on_gpu,
        "CUDA_MODULE_LOADING=EAGER": is_own_on_gpu,
        "NVIDIA_TF32_OVERRIDE=1": is_own_on_gpu,
        "other options of PyTorch's allocator": is_own_on_gpu,
    }
    return {name: reason for name, reason in NO_MODEL.items() if concerns[name]}

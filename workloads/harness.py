"""Run one workload under one pass and return its result record.

Order: memory cap, build, warm-up (compilation included), measured part, numbers. What is raised
becomes a status: `oom` with the phase it came out of, or `failed` with one clear line.
"""

import math
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import AppError
from workloads.measure import oom
from workloads.measure.environment import CompileWatch, device_facts, environment, require_compiler
from workloads.measure.oom import describe
from workloads.measure.output import Events
from workloads.measure.passes import (
    PROFILED_ITERATIONS,
    dump_memory_history,
    make_ranges,
    start_memory_history,
    surround,
)
from workloads.measure.ranks import join_ranks, late, ranks_environment
from workloads.measure.timing import (
    COMPILES_WITHOUT_TRIALS,
    Turn,
    is_shared,
    measure,
    synchronize,
    warm_up,
)
from workloads.program import Context, Metric, Program, Timings
from workloads.spec import CommonParams, ParallelParams, WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How one pass is run."""

    pass_name: str
    out: Path
    iterations: int | None = None
    warmup: int | None = None
    device: str = ""
    "`cuda`, `cpu`, or empty: cuda where there is one."
    is_profiled: bool = True
    "Whether this rank of several records what the pass is for."


@dataclass(slots=True, kw_only=True)
class _State:
    """What is known so far, so that a failure can say it too."""

    result: dict[str, Any]
    stage: str = "build"
    limit_bytes: int | None = None
    observer: oom.OomObserver = field(default_factory=oom.OomObserver)
    captures: list[dict[str, str]] = field(default_factory=list)


def run_workload(
    spec: WorkloadSpec, params: CommonParams, options: RunOptions, events: Events
) -> dict[str, Any]:
    """Return the result record of one pass; never raises for what the workload does."""
    import torch

    on_gpu = options.device == "cuda" or (options.device != "cpu" and torch.cuda.is_available())
    device = torch.device("cuda" if on_gpu else "cpu")
    state = _State(result={"status": "failed"})
    context = Context(
        device=device,
        pass_name=options.pass_name,
        ranges=make_ranges(options.pass_name, on_gpu=on_gpu),
    )
    try:
        if on_gpu:
            torch.cuda.init()  # says what is wrong with the driver, where is_available only says no
        if isinstance(params, ParallelParams):
            _join(params, context, state)
        state.result |= {"device": device_facts(on_gpu=on_gpu), "environment": environment()}
        state.result["environment"] |= ranks_environment(context.ranks, on_gpu=on_gpu)
        _run(spec, params, options, events, context, state)
        context.ranks.close()
    except Exception as error:
        _record_failure(error, context, state, options.out)
    state.result["warnings"] = [{"code": n.code, "message": n.message} for n in context.notes]
    state.result["captures"] = state.captures
    return state.result


def _join(params: ParallelParams, context: Context, state: _State) -> None:
    state.stage = "join"
    is_parallel = params.gpus > 1 or getattr(params, "parallel", "none") != "none"
    context.ranks = join_ranks(params.gpus, on_gpu=context.on_gpu, is_parallel=is_parallel)
    state.stage = "build"


def _run(
    spec: WorkloadSpec,
    params: CommonParams,
    options: RunOptions,
    events: Events,
    context: Context,
    state: _State,
) -> None:
    import torch

    if spec.build is None:
        raise AppError(f"workload {spec.name}: {spec.error or 'has no build'}")
    torch.manual_seed(params.seed)
    compile_mode = getattr(params, "compile", "none")
    watch = CompileWatch(mode=compile_mode, on_gpu=context.on_gpu)
    watch.start_listening()
    if compile_mode != "none":
        require_compiler(on_gpu=context.on_gpu)
    if context.on_gpu:
        state.observer.attach()
        if context.pass_name == "memory" and options.is_profiled:
            start_memory_history()
    if spec.cost is not None:
        state.result["cost"] = spec.cost(params).as_dict()
    state.limit_bytes = oom.apply_memory_cap(params.memory_cap_gib, on_gpu=context.on_gpu)
    if state.limit_bytes is not None:
        state.result["memory_limit_bytes"] = state.limit_bytes
    turn = Turn() if context.ranks.rank == 0 else None  # rank 0 takes it for all of them
    compiles_first = is_shared() and compile_mode in COMPILES_WITHOUT_TRIALS
    if not compiles_first:
        _take(turn, context)
    events.progress("build", 0, 1)
    program: Program = spec.build(params, context)
    if isinstance(params, ParallelParams) and context.ranks.rank == params.straggler_rank:
        program.step = late(program.step, params.straggler_ms, context)
    synchronize(context)
    events.progress("build", 1, 1)
    state.stage = "warmup"
    if compiles_first:
        warm_up(context, program, events, 1)
        _take(turn, context)
    warm_up(context, program, events, params.warmup if options.warmup is None else options.warmup)
    state.stage = "measure"
    _measure(params, options, events, context, program, watch, state)


def _take(turn: Turn | None, context: Context) -> None:
    if turn is not None:
        turn.take()
    context.ranks.barrier()


def _iterations(params: CommonParams, options: RunOptions) -> int:
    if options.iterations is not None:
        return options.iterations
    most = PROFILED_ITERATIONS.get(options.pass_name, params.iterations)
    return min(params.iterations, most)


def _measure(
    params: CommonParams,
    options: RunOptions,
    events: Events,
    context: Context,
    program: Program,
    watch: CompileWatch,
    state: _State,
) -> None:
    if context.on_gpu:
        import torch

        state.result["memory"] = {"baseline_allocated_bytes": torch.cuda.memory_allocated()}
        torch.cuda.reset_peak_memory_stats()
    watch.start_of_measurement()
    recording = surround(
        context, options.out, state.captures, program.step, is_profiled=options.is_profiled
    )
    with recording:
        samples, phases = measure(context, program, events, _iterations(params, options))
    memory = oom.memory_numbers(on_gpu=context.on_gpu)
    if context.peak_bytes:  # each phase began the allocator's peak anew
        highest = max(*context.peak_bytes.values(), memory["peak_allocated_bytes"])
        memory["peak_allocated_bytes"] = highest
    state.result["memory"] = state.result.get("memory", {}) | memory
    state.result["compile"], notes = watch.report()
    if program.cuda_graph:
        state.result["compile"]["cuda_graphs_used"] = True
    context.notes.extend(notes)
    state.result["samples_ns"] = samples
    state.result["phase_samples_ns"] = phases
    timings = Timings(samples_ns=samples if context.is_clean else [], phase_samples_ns=phases)
    metrics = _common_metrics(state.result, timings)
    metrics += program.metrics(timings) if program.metrics is not None else []
    metrics += [
        Metric(name="peak_allocated_bytes", value=peak, unit="B", phase=phase)
        for phase, peak in context.peak_bytes.items()
    ]
    state.result["metrics"] = _finite(metrics, context)
    if context.is_clean:
        events.iterations(samples)
    state.result["status"] = "ok"


def _finite(metrics: list[Metric], context: Context) -> list[dict[str, Any]]:
    """Return the metrics as JSON; one that is not a finite number becomes a warning."""
    kept = []
    for m in metrics:
        if math.isfinite(m.value):
            kept.append({"name": m.name, "value": m.value, "unit": m.unit, "phase": m.phase})
        else:
            context.warn("metric_not_finite", f"{m.name} is {m.value}: the output is wrong")
    return kept


def _common_metrics(result: dict[str, Any], timings: Timings) -> list[Metric]:
    latency_ns = timings.median_ns
    if not latency_ns:
        return []
    cost = result.get("cost", {})
    metrics = []
    if cost.get("num_tokens"):
        rate = cost["num_tokens"] / latency_ns * 1e9
        metrics.append(Metric(name="tokens_per_s", value=rate, unit="tokens/s"))
    if cost.get("flops"):
        rate = cost["flops"] / latency_ns
        metrics.append(Metric(name="model_gflop_per_s", value=rate, unit="GFLOP/s"))
    if cost.get("bytes"):
        rate = cost["bytes"] / latency_ns
        metrics.append(Metric(name="model_gbyte_per_s", value=rate, unit="GB/s"))
    return metrics


def _record_failure(error: Exception, context: Context, state: _State, out: Path) -> None:
    if oom.is_out_of_memory(error):
        failed = context.ranges.failed
        state.result["status"] = "oom"
        state.result["oom"] = oom.oom_record(
            error,
            phase=failed[0] if failed else state.stage,
            stage=state.stage,
            limit=state.limit_bytes,
            observer=state.observer,
        )
        if context.on_gpu and context.pass_name == "memory" and not state.captures:
            dump_memory_history(out, state.captures)
        return
    if not isinstance(error, AppError):
        traceback.print_exception(error, file=sys.stderr)
    failure = describe(error)
    state.result |= {"error": failure.error, "outcome": failure.outcome, "stage": state.stage}

"""A verdict and the facts that it cites: launches an iteration, gaps, idle causes, CUDA graphs."""

from dataclasses import dataclass
from enum import StrEnum

from analysis.idle import idle_of_run
from analysis.iterations import iteration_rows
from analysis.runview import RunView
from core.numbers import decimal
from core.trace_rules import is_launch

GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""torch.compile modes that ask for CUDA graphs."""


class VerdictKind(StrEnum):
    LAUNCH_BOUND = "launch_bound"
    HOST_BOUND = "host_bound"
    SYNC_BOUND = "sync_bound"
    TRANSFER_BOUND = "transfer_bound"
    MEMORY_BOUND = "memory_bound"
    COMPUTE_BOUND = "compute_bound"
    COMMUNICATION_BOUND = "communication_bound"
    STRAGGLER = "straggler"
    OPAQUE = "opaque"
    CPU = "cpu"
    OOM = "oom"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """The answer to "what limits this run?"."""

    kind: VerdictKind
    headline: str
    evidence: tuple[str, ...]
    next_steps: tuple[str, ...]
    bar: tuple[tuple[str, int], ...] = ()
    "(label, ns): kernel time by category, then idle time by cause; () where unknown."

    def as_dict(self) -> dict[str, object]:
        """Return the `verdict` of `show --json`."""
        return {
            "kind": str(self.kind),
            "headline": self.headline,
            "evidence": list(self.evidence),
            "next": list(self.next_steps),
        }


def percent(frac: float) -> str:
    """Return e.g. `83 %`; shares next to 0 and 1 keep a digit so that they do not read as all."""
    value = 100 * frac
    if 0 < value < 0.1:
        return "< 0.1 %"
    if 99.9 < value < 100:
        return "> 99.9 %"
    digits = 1 if 0 < value < 1 or 99 < value < 100 else 0
    return f"{value:.{digits}f} %"


def counted(count: int, singular: str, many: str | None = None) -> str:
    """Return e.g. `1 kernel`, `5 launches`."""
    plural = many or (f"{singular}es" if singular.endswith("ch") else f"{singular}s")
    return f"{count} {singular if count == 1 else plural}"


def milliseconds(ns: float) -> str:
    """Return e.g. `12.6 ms`, three digits; under a microsecond as `640 ns`, from 10 s on in s."""
    if 0 < ns < 1000:
        return f"{ns:.0f} ns"
    if ns >= 1e10:
        return f"{ns / 1e9:.0f} s" if ns >= 1e11 else f"{decimal(ns / 1e9, 3)} s"
    value = ns / 1e6
    return f"{value:.0f} ms" if value >= 100 else f"{decimal(value, 3)} ms"


def byte_size(num_bytes: float) -> str:
    """Return e.g. `80.0 MB` or `4.24 GB` (decimal units), three digits."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= scale * 0.9995:
            size = num_bytes / scale
            return f"{size:.{2 if size < 10 else 1 if size < 100 else 0}f} {unit}"
    return f"{num_bytes:.0f} B"


def idle_causes(view: RunView) -> dict[str, int]:
    """Return idle ns by cause, largest first; {} where the capture holds none.

    Of a regular step where the idle share is that of the steps.
    """
    idle = idle_of_run(view)
    if idle is not None and idle.is_of_steps:
        return {g["cause"]: round(g["total_ns"]) for g in view.by_step.facts.get("gaps", [])}
    if view.gaps.empty:
        return {}
    totals = view.gaps.groupby("cause")["total_ns"].sum().sort_values(ascending=False)
    return {str(cause): int(ns) for cause, ns in totals.items() if ns > 0}


def launches_per_iteration(view: RunView) -> str | None:
    """Return e.g. `76 launches an iteration`, or the total where no iteration is marked.

    Launch calls over iterations, if all kernels lie inside the iterations; else the iterations' own
    kernels, named so. None without either.
    """
    launches = _launch_calls(view)
    idle, a_step = idle_of_run(view), view.by_step.facts.get("num_launches")
    if idle is not None and idle.is_of_steps and a_step:
        return f"{counted(round(a_step), 'launch', 'launches')} a step"
    if view.phases.empty:
        return counted(launches, "launch") if launches else None
    rows = iteration_rows(view.phases)
    num_iterations = int(rows["num_ranges"].sum())
    if not num_iterations:
        return counted(launches, "launch") if launches else None
    kernels = int(rows["num_kernels"].sum())
    if launches and kernels == view.summary.get("num_kernels"):
        shown = _rounded(launches / num_iterations)
        return f"{shown} {'launch' if shown == '1' else 'launches'} an iteration"
    return f"{_rounded(kernels / num_iterations)} kernels an iteration" if kernels else None


def _launch_calls(view: RunView) -> int:
    if view.api_calls.empty:
        return 0
    chosen = view.api_calls["name"].map(lambda n: is_launch(str(n)))
    return int(view.api_calls.loc[chosen, "count"].sum())


def _rounded(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def graphs_not_used(view: RunView) -> str | None:
    """Return a sentence when CUDA graphs were asked for and no graph was launched, else None.

    Asked for: `compile` is a mode that uses them. Not used: the kernel pass counted its graph
    launches and found none, or the program itself reported that they were skipped.
    """
    mode = str(view.run.params.get("compile") or "")
    if mode not in GRAPH_MODES:
        return None
    reported = any("cuda_graphs_skipped" in w.code for w in view.warnings)
    counted = view.summary.get("num_graph_launches")
    if counted == 0 and view.summary.get("num_kernels"):
        return f"CUDA graphs were asked for and not used (compile={mode}, no graph launch recorded)"
    if reported and not counted:
        return f"CUDA graphs were asked for and not used (compile={mode}, skipped by the compiler)"
    return None

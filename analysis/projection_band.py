"""Learn a projection's error band from runs that were measured on both GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.projection import is_host_bound, project
from analysis.runview import RunView
from core.gpus import find_gpu

MIN_PAIRS = 3
"""Fewer say too little: the band stays the assumed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPair:
    """One job measured on both GPUs, and how far its projection was from the measurement."""

    source_id: str
    target_id: str
    measured_ms: float
    projected_ms: float
    is_host_bound: bool

    @property
    def error_frac(self) -> float:
        """Return projected / measured - 1: positive where the projection is too slow."""
        return self.projected_ms / self.measured_ms - 1

    @property
    def factor(self) -> float:
        """Return how many times too slow or too fast the projection is, 1 or more."""
        return max(self.projected_ms / self.measured_ms, self.measured_ms / self.projected_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedBand:
    """The largest factor met, less 1, and the pairs it was met in."""

    band_frac: float
    pairs: tuple[CheckedPair, ...]


def check_pairs(pairs: Sequence[tuple[RunView, RunView]]) -> tuple[CheckedPair, ...]:
    """Project the first run of each pair to the GPU of the second; leave out what cannot be."""
    checked = []
    for source, target in pairs:
        measured_ms = (target.summary.get("latency_ms") or {}).get("median")
        if not measured_ms:
            continue
        try:
            found = project(source, target.peaks, find_gpu(target.run.gpu_model or ""))
        except ValueError:
            continue
        checked.append(
            CheckedPair(
                source_id=source.run.id,
                target_id=target.run.id,
                measured_ms=float(measured_ms),
                projected_ms=found.latency_ns / 1e6,
                is_host_bound=is_host_bound(source),
            )
        )
    return tuple(checked)


def learned_band(pairs: Sequence[CheckedPair], *, is_host_bound: bool) -> LearnedBand | None:
    """Return the band these pairs support; None where there are fewer than MIN_PAIRS.

    Of the pairs that wait for the host as this run does (or do not, as it does not) where there are
    enough: the errors of the two kinds have nothing to do with each other. The largest error, not
    a spread: with a handful of pairs nothing narrower is honest.
    """
    if len(pairs) < MIN_PAIRS:
        return None
    alike = [p for p in pairs if p.is_host_bound == is_host_bound]
    used = alike if len(alike) >= MIN_PAIRS else pairs
    return LearnedBand(band_frac=max(p.factor for p in used) - 1, pairs=tuple(used))

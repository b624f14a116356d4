"""How far projections are off, beside simpler ways to guess: a generated part of results.md.

Every job that was measured on an H100 and an H200, projected both ways. No constant of the
projection is fitted to these pairs but its band; that is learned from the other pairs alone (leave
one out) and said to hold where the measured latency lies inside it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from analysis.projection import CheckedPair, learned_band
from analysis.runview import RunView
from docs.measured import H100, examples, number, table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guess:
    """One pair: the measured latency and what each way says, as error fractions."""

    pair: CheckedPair
    source: RunView
    errors: dict[str, float]
    is_in_band: bool | None


def projection_errors() -> str:
    """Return median and 90th percentile of the errors by kind of work and direction."""
    views = {view.run.id: view for view in examples().views}
    guesses = _guesses(examples().pairs_both_ways, views)
    groups: list[tuple[str, Callable[[_Guess], bool]]] = [
        ("H100 to H200", lambda g: g.source.run.gpu_model == H100),
        ("H200 to H100", lambda g: g.source.run.gpu_model != H100),
        ("busy under nsys, both ways", lambda g: not g.pair.is_host_bound),
        ("the host may decide, both ways", lambda g: g.pair.is_host_bound),
    ]
    for workload in sorted({str(g.source.run.workload) for g in guesses}):
        groups.append((f"{workload}, both ways", partial(_is_of, workload)))
    rows = [_row(name, [g for g in guesses if belongs(g)]) for name, belongs in groups]
    ways = ("projection", "by bandwidth", "by peak", "unchanged")
    head = ("jobs", "number", *(f"{way}, median / 90 %" for way in ways), "in the band")
    return table(head, rows)


def _is_of(workload: str, guess: _Guess) -> bool:
    return guess.source.run.workload == workload


def _guesses(pairs: Sequence[CheckedPair], views: dict[str, RunView]) -> list[_Guess]:
    guesses = []
    for pair in pairs:
        source, target = views[pair.source_id], views[pair.target_id]
        others = [p for p in pairs if {p.source_id, p.target_id} != {source.run.id, target.run.id}]
        band = learned_band(others, is_host_bound=pair.is_host_bound)
        before_ms = float(source.summary["latency_ms"]["median"])
        dtype = str(source.cost.get("flops_dtype") or source.run.params.get("dtype") or "bf16")
        errors = {"projection": pair.error_frac, "unchanged": before_ms / pair.measured_ms - 1}
        for way, peak in (
            ("by bandwidth", "copy_bytes_per_s"),
            ("by peak", f"gemm_{dtype}_flops_per_s"),
        ):
            if source.peaks.get(peak) and target.peaks.get(peak):
                guess_ms = before_ms * source.peaks[peak] / target.peaks[peak]
                errors[way] = guess_ms / pair.measured_ms - 1
        is_in_band = pair.factor <= 1 + band.band_frac if band else None
        guesses.append(_Guess(pair=pair, source=source, errors=errors, is_in_band=is_in_band))
    return guesses


def _row(name: str, guesses: Sequence[_Guess]) -> tuple[str, ...]:
    ways = ("projection", "by bandwidth", "by peak", "unchanged")
    cells = (_errors([abs(g.errors[way]) for g in guesses if way in g.errors]) for way in ways)
    verdicts = [g.is_in_band for g in guesses if g.is_in_band is not None]
    return (
        name,
        str(len(guesses)),
        *cells,
        f"{sum(verdicts)} of {len(verdicts)}" if verdicts else "",
    )


def _errors(values: Iterable[float]) -> str:
    errors = list(values)
    if not errors:
        return ""
    median, high = float(np.median(errors)), float(np.quantile(errors, 0.9))
    return f"{number(median, 1, 100)} / {number(high, 1, 100)} %"

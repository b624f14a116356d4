"""Runs of one job on several GPUs: latency, and the share of each GPU's own peaks it reaches."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.compare.metrics import NS_PER_MS
from analysis.compare.records import IntervalBasis, Scaling, ScoreRow
from analysis.latency import latency_ms
from analysis.roofline import utilisation
from analysis.runview import RunView


def make_scoreboard(views: Sequence[RunView]) -> tuple[ScoreRow, ...]:
    """Return one row for each run that has a latency, in the order given.

    bandwidth_frac and compute_frac are the MBU and MFU of `analysis.roofline`, against the peaks
    measured on that GPU and, apart, its datasheet's. None where cost model or peak is unknown.
    """
    timed = [(v, ms) for v in views if (ms := _latency_ms(v)) is not None]
    if not timed:
        return ()
    first_ms = timed[0][1]
    return tuple(_row(view, ms, first_ms) for view, ms in timed)


def _row(view: RunView, latency_ms: float, first_ms: float) -> ScoreRow:
    latency_ns = latency_ms * NS_PER_MS
    measured = utilisation(cost=view.cost, latency_ns=latency_ns, peaks=view.peaks, gpu_model=None)
    datasheet = utilisation(
        cost=view.cost, latency_ns=latency_ns, peaks={}, gpu_model=view.run.gpu_model
    )
    return ScoreRow(
        run_id=view.run.id,
        label=view.run.name,
        gpu=view.run.gpu_model or "GPU not named",
        latency_ms=latency_ms,
        relative_latency=latency_ms / first_ms,
        bandwidth_frac=measured.mbu,
        compute_frac=measured.mfu,
        datasheet_bandwidth_frac=datasheet.mbu,
        datasheet_compute_frac=datasheet.mfu,
        error="; ".join(text for _, text in measured.errors) or None,
    )


def _latency_ms(view: RunView) -> float | None:
    stored = view.summary.get("latency_ms")
    if isinstance(stored, Mapping) and stored.get("median"):
        return float(stored["median"])
    statistics = latency_ms(view.samples) if len(view.samples) else {}
    return statistics.get("median")


_RATES = ("tokens_per_s", "tokens/s")


def scaling_of(
    a: Sequence[RunView],
    b: Sequence[RunView],
    metric: str,
    ratio: float | None,
    ci95: tuple[float, float] | None,
    basis: IntervalBasis | None,
) -> Scaling | None:
    """Return the scaling efficiency by the ratio B / A of a latency or of tokens a second.

    None where both sides have equally many ranks, or one side is not of one number of them, or for
    a latency where the tokens of an iteration are not known.
    """
    ranks_a, ranks_b = _one(map(num_ranks, a)), _one(map(num_ranks, b))
    if ratio is None or ranks_a is None or ranks_b is None or ranks_a == ranks_b:
        return None
    per_gpu = ranks_a / ranks_b
    if metric == "latency":
        tokens_a, tokens_b = (_one(v.cost.get("num_tokens") for v in side) for side in (a, b))
        if not tokens_a or not tokens_b:
            return None
        more = tokens_b / tokens_a
        low, high = (1 / v for v in reversed(ci95)) if ci95 else (None, None)
        ratio = 1 / ratio
    elif metric in _RATES:
        more = 1.0
        low, high = ci95 or (None, None)
    else:
        return None
    return Scaling(
        ranks_a=ranks_a,
        ranks_b=ranks_b,
        throughput_ratio=more * ratio,
        efficiency=per_gpu * more * ratio,
        ci95=None if low is None or high is None else (per_gpu * more * low, per_gpu * more * high),
        ci95_basis=basis,
    )


def num_ranks(view: RunView) -> int:
    """Return the ranks of a run: as its job asked, else as its captures hold; 1 if unknown."""
    asked = view.run.params.get("gpus")
    return int(asked) if asked else int(view.summary.get("num_ranks") or 1)


def _one(values: Iterable[Any]) -> Any:
    """Return the value that all have; None where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None

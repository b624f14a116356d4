"""Runs of one job on several GPUs: latency, and the share of each GPU's own peaks it reaches."""

from collections.abc import Mapping, Sequence

from analysis.compare.metrics import NS_PER_MS
from analysis.compare.records import ScoreRow
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

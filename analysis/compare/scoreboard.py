"""Runs of one job on several GPUs: latency, and the share of each GPU's own peaks it reaches."""

from collections.abc import Mapping, Sequence

from analysis.compare.metrics import NS_PER_MS
from analysis.compare.records import ScoreRow
from analysis.latency import latency_ms
from analysis.runview import RunView
from core.gpus import datasheet_peaks

MAX_FRAC = 1.0


def make_scoreboard(views: Sequence[RunView]) -> tuple[ScoreRow, ...]:
    """Return one row for each run that has a latency, in the order given.

    bandwidth_frac = bytes / latency / bandwidth; compute_frac = flops / latency / peak of the cost
    model's dtype; against the peaks measured on that GPU and, apart, its datasheet's. None where
    cost model or peak is unknown.
    """
    timed = [(v, ms) for v in views if (ms := _latency_ms(v)) is not None]
    if not timed:
        return ()
    first_ms = timed[0][1]
    return tuple(_row(view, ms, first_ms) for view, ms in timed)


def _row(view: RunView, latency_ms: float, first_ms: float) -> ScoreRow:
    seconds = latency_ms * NS_PER_MS / 1e9
    measured = _shares(view.cost, seconds, view.peaks)
    datasheet = _shares(view.cost, seconds, datasheet_peaks(view.run.gpu_model))
    over = [name for name, share in measured.items() if share is not None and share > MAX_FRAC]
    error = (
        f"{' and '.join(over)} over 100 %: the cost model or the peak is wrong" if over else None
    )
    return ScoreRow(
        run_id=view.run.id,
        label=view.run.name,
        gpu=view.run.gpu_model or "GPU not named",
        latency_ms=latency_ms,
        relative_latency=latency_ms / first_ms,
        bandwidth_frac=_possible(measured["bandwidth"]),
        compute_frac=_possible(measured["compute"]),
        datasheet_bandwidth_frac=_possible(datasheet["bandwidth"]),
        datasheet_compute_frac=_possible(datasheet["compute"]),
        error=error,
    )


def _shares(
    cost: Mapping[str, object], seconds: float, peaks: Mapping[str, float]
) -> dict[str, float | None]:
    compute = peaks.get(f"gemm_{cost.get('flops_dtype')}_flops_per_s")
    return {
        "bandwidth": _share(cost.get("bytes"), seconds, peaks.get("copy_bytes_per_s")),
        "compute": _share(cost.get("flops"), seconds, compute),
    }


def _share(amount: object, seconds: float, peak: float | None) -> float | None:
    if not isinstance(amount, int | float) or not peak or seconds <= 0:
        return None
    return float(amount) / seconds / peak


def _possible(share: float | None) -> float | None:
    return None if share is None or share > MAX_FRAC else share


def _latency_ms(view: RunView) -> float | None:
    stored = view.summary.get("latency_ms")
    if isinstance(stored, Mapping) and stored.get("median"):
        return float(stored["median"])
    found = latency_ms(view.samples) if len(view.samples) else {}
    return found.get("median")

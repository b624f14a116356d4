"""Runs of one job on several GPUs: latency, and the share of each GPU's own peaks it reaches."""

from collections.abc import Mapping, Sequence

from analysis.compare.metrics import NS_PER_MS
from analysis.compare.records import ScoreRow
from analysis.runview import RunView

BANDWIDTH_PEAKS = ("copy_bytes_per_s", "read_bytes_per_s", "dram_bytes_per_s")
MAX_FRAC = 1.0


def make_scoreboard(views: Sequence[RunView]) -> tuple[ScoreRow, ...]:
    """Return one row for each run that has a latency, in the order given.

    bandwidth_frac = bytes / latency / measured bandwidth; compute_frac = flops / latency /
    measured peak of the cost model's dtype. None where cost model or measured peak is unknown.
    """
    timed = [(v, ms) for v in views if (ms := _latency_ms(v)) is not None]
    if not timed:
        return ()
    first_ms = timed[0][1]
    return tuple(_row(view, ms, first_ms) for view, ms in timed)


def _row(view: RunView, latency_ms: float, first_ms: float) -> ScoreRow:
    seconds = latency_ms * NS_PER_MS / 1e9
    bandwidth = next((view.peaks[p] for p in BANDWIDTH_PEAKS if view.peaks.get(p)), None)
    compute = view.peaks.get(f"gemm_{view.cost.get('flops_dtype')}_flops_per_s")
    shares = {
        "bandwidth": _share(view.cost, "bytes", seconds, bandwidth),
        "compute": _share(view.cost, "flops", seconds, compute),
    }
    over = [name for name, share in shares.items() if share is not None and share > MAX_FRAC]
    error = (
        f"{' and '.join(over)} over 100 %: the cost model or the peak is wrong" if over else None
    )
    return ScoreRow(
        run_id=view.run.id,
        label=view.run.name,
        gpu=view.run.gpu_model or "GPU not named",
        latency_ms=latency_ms,
        relative_latency=latency_ms / first_ms,
        bandwidth_frac=None if "bandwidth" in over else shares["bandwidth"],
        compute_frac=None if "compute" in over else shares["compute"],
        error=error,
    )


def _share(
    cost: Mapping[str, object], what: str, seconds: float, peak: float | None
) -> float | None:
    amount = cost.get(what)
    if not isinstance(amount, int | float) or not peak or seconds <= 0:
        return None
    return float(amount) / seconds / peak


def _latency_ms(view: RunView) -> float | None:
    stored = view.summary.get("latency_ms")
    if isinstance(stored, Mapping) and stored.get("median"):
        return float(stored["median"])
    if len(view.samples):
        medians = view.samples.groupby("process")["latency_ns"].median()
        return float(medians.median()) / NS_PER_MS
    return None

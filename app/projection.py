"""The document of `project --json`: a projected latency with its error band and its label."""

from collections.abc import Iterable
from typing import Any

from core.config import DataDir
from core.errors import UserError
from core.gpus import GPUS, find_gpu, match_gpu_name


def projection_document(data_dir: DataDir, run_text: str, gpu_name: str) -> dict[str, Any]:
    """Return the projection of a run to a GPU of the table or one whose peaks are stored.

    UserError when the run or the GPU is unknown, or when the run lacks what a projection needs.
    """
    from analysis.projection import ASSUMED_BAND_FRAC, project
    from db.connection import opened
    from db.fetch import run_view
    from db.runs import resolve_run
    from db.status import gpus

    with opened(data_dir.db_path) as db:
        view = run_view(db, data_dir, resolve_run(db, run_text))
        stored = gpus(db).dropna(subset=["model"])
    model = match_gpu_name(gpu_name, [*(g.name for g in GPUS), *_unlisted(stored["model"])])
    facts = find_gpu(model)
    is_it = [(find_gpu(m) if facts else m) == (facts or model) for m in stored["model"]]
    peaks = next((p for p in stored[is_it]["peaks"] if p), {})
    try:
        found = project(view, peaks, facts)
    except ValueError as exc:
        raise UserError(f"project {view.run.id} to {model}: {exc}") from exc
    return {
        "kind": "projected",
        "run_id": view.run.id,
        "source_gpu": view.run.gpu_model,
        "gpu": model,
        "measured_ms": view.summary["latency_ms"]["median"],
        "latency_ms": {
            "median": found.latency_ns / 1e6,
            "low": found.low_ns / 1e6,
            "high": found.high_ns / 1e6,
        },
        "band_frac": ASSUMED_BAND_FRAC,
        "is_band_learned": False,
        "basis": found.basis,
        "notes": list(found.notes),
    }


def _unlisted(models: Iterable[str]) -> list[str]:
    """Return the stored GPUs that the table does not hold: their measured peaks can serve."""
    return [m for m in dict.fromkeys(models) if find_gpu(m) is None]

"""`warpboard project RUN --gpu NAME`: what the run would take on another GPU, by projection."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app.cli.output import add_json, add_run, note, print_json
from core.config import DataDir
from core.errors import UserError
from core.gpus import GPUS, find_gpu, match_gpu_name
from core.numbers import decimal

if TYPE_CHECKING:
    from analysis.projection import Projection
    from analysis.runview import RunView


def arguments(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--gpu", required=True, metavar="NAME", help="the GPU to project to")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    document = projection_document(data, options.id, options.gpu)
    if options.json:
        print_json(document)
        return 0
    latency = document["latency_ms"]
    low, high = latency["low"], latency["high"]
    num_pairs = len(document["pairs"])
    band = f"learned from {num_pairs} jobs" if document["is_band_learned"] else "assumed"
    print(
        f"projected latency on {document['gpu']}: {decimal(latency['median'])} ms"
        f" (error band {decimal(low)} to {decimal(high)} ms, {band})"
    )
    print(
        f"measured on {document['source_gpu'] or 'an unknown GPU'}: "
        f"{decimal(document['measured_ms'])} ms"
    )
    print(f"where its time goes: {document['basis']}")
    for text in document["notes"]:
        note(f"note: {text}")
    return 0


MAX_PAIRS = 50
"""Each pair is read whole; more of them would not change what the largest error says."""


def projection_document(data_dir: DataDir, run_text: str, gpu_name: str) -> dict[str, Any]:
    """Return the projection of a run to a GPU of the table or one whose peaks are stored.

    Its band is the largest error among other jobs measured on both GPUs, where there are enough:
    those that wait for the host if this run does, else those that do not.

    UserError when the run or the GPU is unknown, or when the run lacks what a projection needs.
    """
    from analysis.projection import (
        ASSUMED_BAND_FRAC,
        check_pairs,
        is_host_bound,
        learned_band,
        project,
    )
    from db.connection import opened
    from db.fetch import run_view
    from db.runs import resolve_run
    from db.status import gpus

    with opened(data_dir.db_path, is_reader=True) as db:
        view = run_view(db, data_dir, resolve_run(db, run_text))
        stored = gpus(db).dropna(subset=["model"])
        model = match_gpu_name(gpu_name, [*(g.name for g in GPUS), *_unlisted(stored["model"])])
        checked = check_pairs(_measured_pairs(db, data_dir, view, model))
    peaks: dict[str, float] = next(
        (g.peaks for g in stored.itertuples() if g.peaks and _is_same(g.model, model)), {}
    )
    band = learned_band(checked, is_host_bound=is_host_bound(view))
    band_frac = band.band_frac if band else ASSUMED_BAND_FRAC
    facts, is_learned = find_gpu(model), band is not None
    try:
        projected = project(view, peaks, facts, band_frac=band_frac, is_band_learned=is_learned)
    except ValueError as exc:
        raise UserError(f"project {view.run.id} to {model}: {exc}") from exc
    return {
        **_document(view, model, projected),
        "band_frac": band_frac,
        "is_band_learned": is_learned,
        "pairs": [
            {"source": p.source_id, "target": p.target_id, "error_frac": p.error_frac}
            for p in (band.pairs if band else checked)
        ],
    }


def _measured_pairs(
    db: Any, data_dir: DataDir, view: "RunView", model: str
) -> list[tuple["RunView", "RunView"]]:
    """Return other jobs that were measured on the run's GPU and on this model."""
    from db.fetch import run_view
    from db.status import measured_on_both

    ids = [
        (source, target)
        for source, other, target in measured_on_both(db, view.run.gpu_model)
        if _is_same(other, model) and view.run.id not in (source, target)
    ]
    return [(run_view(db, data_dir, a), run_view(db, data_dir, b)) for a, b in ids[:MAX_PAIRS]]


def _document(view: "RunView", model: str, projected: "Projection") -> dict[str, Any]:
    return {
        "kind": "projected",
        "run_id": view.run.id,
        "source_gpu": view.run.gpu_model,
        "gpu": model,
        "measured_ms": view.summary["latency_ms"]["median"],
        "latency_ms": {
            "median": projected.latency_ns / 1e6,
            "low": projected.low_ns / 1e6,
            "high": projected.high_ns / 1e6,
        },
        "basis": projected.basis,
        "notes": list(projected.notes),
    }


def _is_same(name: str, model: str) -> bool:
    """Say whether a GPU's own name means the model of the table, or the same unlisted one."""
    facts = find_gpu(model)
    return find_gpu(name) == facts if facts else name == model


def _unlisted(models: Iterable[str]) -> list[str]:
    """Return the stored GPUs that the table does not hold: their measured peaks can serve."""
    return [m for m in dict.fromkeys(models) if find_gpu(m) is None]

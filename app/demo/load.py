"""Load the example runs of `demo.toml` under the source `demo`; again changes nothing."""

import json
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.manifest import MANIFEST
from app.imports import Imported, import_paths
from core.config import DataDir
from core.spec import JobSpec
from db.connection import opened
from db.runs import set_notes, set_tags

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER / "data"


def load_demo(data_dir: DataDir, tell: Callable[[str], None]) -> list[Imported]:
    """Import every example that is not here yet; `tell` is given each one's name."""
    entries = tomllib.loads((FOLDER / "demo.toml").read_text(encoding="utf-8"))["run"]
    loaded = []
    for entry in entries:
        tell(entry["name"])
        loaded.append(_load(data_dir, entry))
    return loaded


def _load(data_dir: DataDir, entry: Mapping[str, Any]) -> Imported:
    with tempfile.TemporaryDirectory() as scratch:
        result = import_paths(
            data_dir,
            _paths(entry, Path(scratch)),
            name=entry["name"],
            params=entry.get("params") if "samples" not in entry else None,
            source="demo",
        )
    if result.is_new:
        with opened(data_dir.db_path) as db:
            set_tags(db, result.run_id, entry.get("tags", []))
            set_notes(db, result.run_id, entry.get("notes", ""))
    return result


def _paths(entry: Mapping[str, Any], scratch: Path) -> list[Path]:
    if "bundle" in entry:
        return [DATA / entry["bundle"]]
    if "files" in entry:
        return [DATA / name for name in entry["files"]]
    (scratch / MANIFEST).write_text(json.dumps(_samples_manifest(entry)))
    return [scratch]


def _samples_manifest(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest for latencies (`lat_ms`, one line a process) measured by hand."""
    lines = [json.loads(line) for line in (DATA / entry["samples"]).read_text().splitlines()]
    chosen = [x for x in lines if all(x[k] == v for k, v in entry["where"].items())]
    params = {k: v for k, v in entry["params"].items() if k != "workload"}
    workload = entry["params"]["workload"]
    job = JobSpec(workload=workload, params=params, repeats=len(chosen), gpu=entry["gpu"])
    passes = [
        {
            "pass": "clean",
            "process": number,
            "status": "ok",
            "outcome": "ok",
            "captures": [],
            "warnings": [],
            "result": {"samples_ns": [round(ms * 1e6) for ms in line["lat_ms"]]},
        }
        for number, line in enumerate(chosen)
    ]
    return {
        "schema_version": 1,
        "job": job.as_dict(),
        "status": "done",
        "gpu": {"model": entry["gpu"]},
        "passes": passes,
    }

"""Load the example runs of `demo.toml` under the source `demo`; again changes nothing."""

import json
import os
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from app.imports import Imported, import_paths
from captures.manifest import MANIFEST
from core.config import DataDir
from core.spec import JobSpec
from db.connection import opened
from db.runs import set_notes, set_tags

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER / "data"
MAX_PROCESSES = 4


def load_demo(data_dir: DataDir, tell: Callable[[str], None]) -> list[Imported]:
    """Import every example that is not here yet; `tell` is given each one's name.

    Several processes read, since reading is what takes the time.
    """
    num_processes = min(os.cpu_count() or 1, MAX_PROCESSES)
    loaded = []
    with (
        unpacked() as entries,
        ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool,
    ):
        for name, run in pool.map(partial(_load, data_dir.ensure()), entries):
            tell(name)
            loaded.append(run)
    return loaded


@contextmanager
def unpacked() -> Iterator[Iterator[Mapping[str, Any]]]:
    """Give the example runs: the entries of `demo.toml`, then one a bundle of its archives.

    An archive is unpacked when its turn comes; its bundles are folders that are gone afterwards.
    """
    with tempfile.TemporaryDirectory() as scratch:
        yield _entries(Path(scratch))


def _entries(scratch: Path) -> Iterator[Mapping[str, Any]]:
    found = tomllib.loads((FOLDER / "demo.toml").read_text(encoding="utf-8"))
    yield from found["run"]
    for group in found["archive"]:
        folder = scratch / group["file"]
        with tarfile.open(DATA / group["file"]) as archive:
            archive.extractall(folder, filter="data")
        for bundle in sorted(folder.iterdir()):
            yield {
                "name": f"{group['prefix']}{bundle.name.replace('-', ' ')}",
                "bundle": bundle,
                "tags": [*group["tags"], bundle.name.split("-")[0]],
                "notes": group["notes"],
            }


def _load(data_dir: DataDir, entry: Mapping[str, Any]) -> tuple[str, Imported]:
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
    return entry["name"], result


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

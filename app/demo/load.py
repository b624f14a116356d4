"""Load the example runs of `demo.toml` under the source `demo`; again changes nothing."""

import json
import os
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from app.imports import Given, Imported, import_several
from captures.manifest import MANIFEST
from core.config import DataDir
from core.errors import AppError
from core.spec import JobSpec
from db.connection import opened
from db.runs import set_notes, set_tags

FOLDER = Path(os.environ.get("WARPBOARD_EXAMPLES") or Path(__file__).resolve().parent)
"""Holds `demo.toml` and `data/`: ours, or those of who serves the dashboard."""
DATA = FOLDER / "data"
CAPTURES = "captures.tar.xz"
"""What the entries of `demo.toml` name: single captures, and bundles that were named by hand."""
MAX_CHILDREN = 4
BATCH = 75
"""Examples that one child reads: its start costs as much as reading ten of them.

Small enough for several per core: some are stored while others are read.
"""


def load_demo(data_dir: DataDir, tell: Callable[[str], None]) -> list[Imported]:
    """Import every example that is not here yet; `tell` is given each one's name.

    Some are read together in a child, and several children at a time: reading takes the time.
    """
    num_children = min(os.cpu_count() or 1, MAX_CHILDREN)
    loaded = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        unpacked() as entries,
        ThreadPoolExecutor(num_children) as pool,
    ):
        batches = _batches(entries)
        for batch in pool.map(partial(_load, data_dir.ensure(), Path(scratch)), batches):
            for name, run in batch:
                tell(name)
                loaded.append(run)
    return loaded


def _batches(entries: Iterator[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    while batch := list(islice(entries, BATCH)):
        yield batch


@contextmanager
def unpacked() -> Iterator[Iterator[Mapping[str, Any]]]:
    """Give the example runs: the entries of `demo.toml`, then one per bundle of its archives.

    An archive is unpacked when its turn comes; files and folders are gone afterwards.
    """
    with tempfile.TemporaryDirectory() as scratch:
        yield _entries(Path(scratch))


def _entries(scratch: Path) -> Iterator[Mapping[str, Any]]:
    listing = tomllib.loads((FOLDER / "demo.toml").read_text(encoding="utf-8"))
    captures = unpack(CAPTURES, scratch)
    yield from (_placed(entry, captures) for entry in listing["run"])
    for group in listing.get("archive", []):
        folder = unpack(group["file"], scratch)
        for bundle in sorted(folder.iterdir()):
            yield {
                "name": f"{group['prefix']}{bundle.name.replace('-', ' ')}",
                "bundle": bundle,
                "tags": [*group["tags"], bundle.name.split("-")[0]],
                "notes": group["notes"],
            }


def unpack(name: str, scratch: Path) -> Path:
    """Unpack one archive of the example data into a folder of its name under `scratch`."""
    folder = scratch / name
    with tarfile.open(DATA / name) as archive:
        # Python has filters since 3.11.4; the archive is our own
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


def _placed(entry: Mapping[str, Any], captures: Path) -> dict[str, Any]:
    """Return an entry of `demo.toml` with the paths of its files."""
    placed = dict(entry)
    for key in ("bundle", "samples"):
        if key in entry:
            placed[key] = captures / entry[key]
    if "files" in entry:
        placed["files"] = [captures / name for name in entry["files"]]
    return placed


def _load(
    data_dir: DataDir, scratch: Path, entries: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Imported]]:
    runs = [
        Given(
            paths=_paths(entry, Path(tempfile.mkdtemp(dir=scratch))),
            name=entry["name"],
            params={} if "samples" in entry else entry.get("params") or {},
        )
        for entry in entries
    ]
    loaded = []
    with opened(data_dir.db_path) as db:
        imported = import_several(data_dir, runs, source="demo")
        for entry, outcome in zip(entries, imported, strict=True):
            if isinstance(outcome, AppError):
                raise outcome
            if outcome.is_new:
                set_tags(db, outcome.run_id, entry.get("tags", []))
                set_notes(db, outcome.run_id, entry.get("notes", ""))
            loaded.append((entry["name"], outcome))
    return loaded


def _paths(entry: Mapping[str, Any], scratch: Path) -> list[Path]:
    if "bundle" in entry:
        return [entry["bundle"]]
    if "files" in entry:
        return list(entry["files"])
    (scratch / MANIFEST).write_text(json.dumps(_samples_manifest(entry)))
    return [scratch]


def _samples_manifest(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest for latencies (`lat_ms`, one line per process) measured by hand."""
    lines = [json.loads(line) for line in entry["samples"].read_text().splitlines()]
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

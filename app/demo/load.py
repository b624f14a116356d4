"""Load the example runs of `demo.toml` under the source `demo`; again changes nothing."""

import json
import lzma
import os
import shutil
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

from app.imports import Given, Imported, import_several
from captures.manifest import MANIFEST
from core.config import DataDir
from core.errors import AppError
from core.ids import new_id
from core.spec import JobSpec
from db.connection import opened
from db.runs import set_notes, set_tags

FOLDER = Path(os.environ.get("WARPBOARD_EXAMPLES") or Path(__file__).resolve().parent)
"""Holds `demo.toml` and `data/`: ours, or those of who serves the dashboard."""
DATA = FOLDER / "data"
CAPTURES = "captures.tar.xz"
"""What the entries of `demo.toml` name: single captures, and bundles that were named by hand."""
MAX_CHILDREN = 4
BATCH = 125
"""Examples that one child reads: its start costs a second of CPU time.

Three are enough: some are stored while others are read and later archives are unpacked.
"""
ANSWERS = DATA / "answers.jsonl.xz"
"""What reading each example gives, made by `app.demo.answers`: loading is mostly storing it."""
VERSION = 1
"""Of the answers' form: others are not used, and the examples are read."""


def load_demo(data_dir: DataDir, tell: Callable[[str], None]) -> list[Imported]:
    """Import every example that is not here yet; `tell` is given each one's name.

    Several batches are read at a time, while later archives are unpacked, and stored one after the
    other: of two runs of one job the later one counts as the newer. Files are unpacked beside the
    data directory's own, so that they are moved to their places.
    """
    num_threads = min(os.cpu_count() or 1, MAX_CHILDREN)
    # A user's own rules class kernels otherwise than the answers do
    answers = {} if data_dir.rules_path.exists() else read_answers()
    loaded = []
    with (
        _scratch(data_dir.ensure().uploads) as scratch,
        unpacked(scratch) as entries,
        ThreadPoolExecutor(num_threads) as pool,
    ):
        load = partial(_load, data_dir, scratch, answers)
        for batch in pool.map(load, _in_turn(batches(entries))):
            for name, run in batch:
                tell(name)
                loaded.append(run)
    return loaded


@contextmanager
def _scratch(place: Path) -> Iterator[Path]:
    """Give a new folder, which is gone afterwards."""
    folder = place / new_id("i")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Answers(Mapping[str, Mapping[str, Any]]):
    """Documents by content hash; each is parsed when it is asked for."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self._texts = texts

    def __getitem__(self, sha256: str) -> Mapping[str, Any]:
        document: dict[str, Any] = json.loads(self._texts[sha256])
        return document

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def read_answers() -> Mapping[str, Mapping[str, Any]]:
    """Return the answers made beforehand; none where the file is not there, or of another version.

    A line each: the content hash, a space and the document. The first line is the version.
    """
    try:
        version, *lines = lzma.decompress(ANSWERS.read_bytes()).splitlines()
    except (FileNotFoundError, lzma.LZMAError, EOFError, ValueError):  # cut off, or no such file
        return {}
    if version != str(VERSION).encode():
        return {}
    return Answers(
        {sha256.decode("latin-1"): text for sha256, _, text in (x.partition(b" ") for x in lines)}
    )


def batches(
    entries: Iterator[Mapping[str, Any]], size: int = BATCH
) -> Iterator[list[Mapping[str, Any]]]:
    """Give the examples in lists of those that are read together."""
    while batch := list(islice(entries, size)):
        yield batch


Turn = tuple[list[Mapping[str, Any]], Event, Event]
"""Examples that are read together; when those before are stored; when these are."""


def _in_turn(parts: Iterator[list[Mapping[str, Any]]]) -> Iterator[Turn]:
    before = Event()
    before.set()
    for entries in parts:
        mine = Event()
        yield entries, before, mine
        before = mine


@contextmanager
def unpacked(place: Path | None = None) -> Iterator[Iterator[Mapping[str, Any]]]:
    """Give the example runs: the entries of `demo.toml`, then one per bundle of its archives.

    An archive is unpacked below `place` when its turn comes; its files are gone afterwards.
    """
    with tempfile.TemporaryDirectory(dir=place) as scratch:
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
    data_dir: DataDir, scratch: Path, answers: Mapping[str, Mapping[str, Any]], turn: Turn
) -> list[tuple[str, Imported]]:
    entries, before, mine = turn
    loaded = []
    try:
        runs = [given_of(entry, scratch) for entry in entries]
        given: dict[str, Any] = {"answers": answers, "before_storing": before.wait}
        imported = import_several(data_dir, runs, source="demo", **given)
        with opened(data_dir.db_path) as db:
            for entry, outcome in zip(entries, imported, strict=True):
                if isinstance(outcome, AppError):
                    raise outcome
                if outcome.is_new:
                    set_tags(db, outcome.run_id, entry.get("tags", []))
                    set_notes(db, outcome.run_id, entry.get("notes", ""))
                loaded.append((entry["name"], outcome))
    finally:
        mine.set()
    return loaded


def given_of(entry: Mapping[str, Any], scratch: Path) -> Given:
    """Return an example as it is imported, its files in a folder of its own."""
    return Given(
        paths=_paths(entry, scratch),
        name=entry["name"],
        params={} if "samples" in entry else entry.get("params") or {},
    )


def _paths(entry: Mapping[str, Any], scratch: Path) -> list[Path]:
    if "bundle" in entry:
        return [entry["bundle"]]
    folder = Path(tempfile.mkdtemp(dir=scratch))
    if "files" in entry:
        return [Path(shutil.copy(path, folder)) for path in entry["files"]]
    (folder / MANIFEST).write_text(json.dumps(_samples_manifest(entry)) + "\n")
    return [folder]


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

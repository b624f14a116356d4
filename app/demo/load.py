"""Load the example runs of `demo.toml` under the source `demo`; again changes nothing."""

import hashlib
import io
import json
import lzma
import os
import shutil
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.tables import CaptureWarning
from app.imports import Given, Imported, found, import_each
from app.reading import Answer
from captures.contents import content_hash
from captures.manifest import MANIFEST
from core.config import DataDir
from core.errors import AppError
from core.ids import new_id
from core.plain_text import cut
from core.spec import JobSpec
from db.connection import opened
from db.runs import set_notes, set_tags

FOLDER = Path(os.environ.get("WARPBOARD_EXAMPLES") or Path(__file__).resolve().parent)
"""Holds `demo.toml` and `data/`: ours, or those of who serves the dashboard."""
DATA = FOLDER / "data"
CAPTURES = "captures.tar.xz"
"""What the entries of `demo.toml` name: single captures, and bundles that were named by hand."""
MAX_CHILDREN = 4
ANSWERS = DATA / "answers.jsonl.xz"
"""What reading each example gives, made by `app.demo.answers`: loading is mostly storing it."""
VERSION = 2
"""Of the answers' form: others are not used, and the examples are read."""
OLDER = "older_example"
"""Code of the warning that an example is here as an older version of the examples had it."""


def load_demo(data_dir: DataDir, tell: Callable[[str], None]) -> list[Imported]:
    """Import every example that is not here yet; `tell` is given each one's name once it is there.

    The archives are unpacked beside the data directory's own files, so that these are moved to
    their places. Then several children read, while what was read is stored in order: of two runs
    of one job the later one counts as the newer. An example that is here as an older version of
    the examples had it stays so, with a warning.
    """
    # A user's own rules class kernels otherwise than the answers do
    answers = Answers() if data_dir.rules_path.exists() else read_answers()
    with opened(data_dir.ensure().db_path) as db, _scratch(data_dir.uploads) as scratch:
        stored = dict(db.execute("SELECT content_hash, id FROM runs").fetchall())
        with unpacked(scratch, answers, stored) as entries:
            runs = [given_of(entry, scratch, answers) for entry in entries]
            older = _older(db, entries, runs, stored)
            wanted = [number for number in range(len(runs)) if number not in older]
            loaded = {number: _left(db, run_id) for number, run_id in older.items()}
            chosen = [runs[number] for number in wanted]
            num_children = min(os.cpu_count() or 1, MAX_CHILDREN)
            importing = import_each(data_dir, chosen, source="demo", num_children=num_children)
            with closing(importing) as imported:  # an interrupt ends the children too
                for at, outcome in imported:
                    entry = entries[wanted[at]]
                    loaded[wanted[at]] = _labelled(db, entry, outcome)
                    tell(entry["name"])
    return [loaded[number] for number in range(len(runs))]


@contextmanager
def _scratch(place: Path) -> Iterator[Path]:
    """Give a new folder, which is gone afterwards."""
    folder = place / new_id("i")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _labelled(db: Any, entry: Mapping[str, Any], outcome: Imported | AppError) -> Imported:
    """Give a new run its tags and notes; an example that is refused is an error of ours."""
    if isinstance(outcome, AppError):
        raise outcome
    if outcome.is_new:
        set_tags(db, outcome.run_id, entry.get("tags", []))
        set_notes(db, outcome.run_id, entry.get("notes", ""))
    return outcome


def _older(
    db: Any,
    entries: Sequence[Mapping[str, Any]],
    runs: Sequence[Given],
    stored: Collection[str],
) -> dict[int, str]:
    """Return by number the examples that are here with other contents, and those runs."""
    current = {run.content_hash for run in runs}
    rows = db.execute(
        "SELECT name, id, content_hash FROM runs WHERE source = 'demo' ORDER BY created_at, id"
    ).fetchall()
    others = {name: run_id for name, run_id, sha256 in rows if sha256 not in current}
    return {
        number: others[name]
        for number, (entry, run) in enumerate(zip(entries, runs, strict=True))
        if run.content_hash not in stored and (name := cut(entry["name"])) in others
    }


def _left(db: Any, run_id: str) -> Imported:
    """Return a run that stays as an older version of the examples had it."""
    text = "this example has other contents now: delete the run, and load the examples again"
    run = found(db, run_id)
    return replace(run, warnings=(*run.warnings, CaptureWarning(code=OLDER, message=text)))


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers made beforehand, by what they were read from."""

    archives: Mapping[str, str] = field(default_factory=dict)
    "SHA-256 of each archive of bundles."
    by_bundle: Mapping[str, Mapping[str, Answer]] = field(default_factory=dict)
    "Archive -> folder in it -> its answer."
    by_hash: Mapping[str, Answer] = field(default_factory=dict)
    "Content hash -> answer."

    def of_archive(self, name: str, sha256: str) -> Mapping[str, Answer]:
        """Return the answers to an archive's bundles; {} where it is not the one they are to."""
        return self.by_bundle.get(name, {}) if self.archives.get(name) == sha256 else {}


def read_answers() -> Answers:
    """Return the answers made beforehand; none where the file is not there, or of another version.

    The first line is the version, the second tells the archives. Each other line is about one
    example: what it is and what is asked of its records, a tab, and the document of `run.json`.
    """
    try:
        version, *lines = lzma.decompress(ANSWERS.read_bytes()).splitlines()
        if version != str(VERSION).encode():
            return Answers()
        return _told(json.loads(lines[0]), lines[1:])
    except (FileNotFoundError, lzma.LZMAError, EOFError, ValueError, LookupError, TypeError):
        return Answers()  # no such file, cut off, or of another form


def _told(archives: Mapping[str, str], lines: Sequence[bytes]) -> Answers:
    """Return the answers by the lines that tell each; their documents are parsed when stored."""
    by_bundle: dict[str, dict[str, Answer]] = {name: {} for name in archives}
    by_hash = {}
    for line in lines:
        head, _, text = line.partition(b"\t")
        told = json.loads(head)
        sha256 = told["content_hash"]
        by_hash[sha256] = Answer(content_hash=sha256, records=told["records"], text=text)
        if told["archive"] in by_bundle:
            by_bundle[told["archive"]][told["bundle"]] = by_hash[sha256]
    return Answers(archives, by_bundle, by_hash)


@contextmanager
def unpacked(
    place: Path | None = None, answers: Answers | None = None, stored: Collection[str] = ()
) -> Iterator[list[dict[str, Any]]]:
    """Give the example runs: the entries of `demo.toml`, then one per bundle of its archives.

    They lie below `place` and are gone afterwards. An archive of which the content hash of every
    bundle is among `stored` is not unpacked.
    """
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        yield _entries(Path(scratch), answers or Answers(), stored)


def _entries(scratch: Path, answers: Answers, stored: Collection[str]) -> list[dict[str, Any]]:
    listing = tomllib.loads((FOLDER / "demo.toml").read_text(encoding="utf-8"))
    groups = listing.get("archive", [])
    files = [CAPTURES, *(group["file"] for group in groups)]
    known = {name: answers.of_archive(name, archive_sha256(name)) for name in files}
    needed = [
        name
        for name, by_bundle in known.items()
        if not by_bundle or any(a.content_hash not in stored for a in by_bundle.values())
    ]
    # The largest takes longest; unpacking leaves Python's lock to others.
    needed.sort(key=lambda name: -(DATA / name).stat().st_size)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(partial(unpack, scratch=scratch), needed))
    entries = [_placed(entry, scratch / CAPTURES) for entry in listing.get("run", [])]
    for group in groups:
        folder = scratch / group["file"]
        by_bundle = known[group["file"]]
        for name in sorted(by_bundle or os.listdir(folder)):
            entries.append(
                {
                    "name": f"{group['prefix']}{name.replace('-', ' ')}",
                    "archive": group["file"],
                    "bundle": folder / name,
                    "tags": [*group["tags"], name.split("-")[0]],
                    "notes": group["notes"],
                    "answer": by_bundle.get(name),
                }
            )
    return entries


def archive_sha256(name: str) -> str:
    """Return the SHA-256 of one archive of the example data."""
    return hashlib.sha256((DATA / name).read_bytes()).hexdigest()


def unpack(name: str, scratch: Path) -> Path:
    """Unpack one archive of the example data into a folder of its name under `scratch`."""
    folder = scratch / name
    content = lzma.decompress((DATA / name).read_bytes())  # in one piece, without Python's lock
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
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


def given_of(entry: Mapping[str, Any], scratch: Path, answers: Answers | None = None) -> Given:
    """Return an example as it is imported, its files in a folder of its own."""
    paths = _paths(entry, scratch)
    answer = entry.get("answer")
    sha256 = answer.content_hash if answer else content_hash(paths)
    if answer is None and answers is not None:
        answer = answers.by_hash.get(sha256 or "")
    return Given(
        paths=paths,
        name=entry["name"],
        params={} if "samples" in entry else entry.get("params") or {},
        content_hash=sha256,
        answer=answer,
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

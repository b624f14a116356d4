"""What reading each example run gives, made beforehand: `python -m app.demo.answers [--check]`.

Reading takes most of the time in which the example runs are loaded. An answer is the `run.json`
that a reader's child writes (`analysis.transfer`), under the content hash of the files that it was
read from: files that changed have none, and are read. Records of single operations are too large
to be kept beside the captures: they are read out of them when the examples are loaded.

Make them again after a change of the readers, of what they count, or of the example data.
"""

import argparse
import json
import lzma
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from analysis.transfer import run_of
from app.demo.load import (
    ANSWERS,
    VERSION,
    archive_sha256,
    given_of,
    read_answers,
    unpacked,
)
from app.kept_manifest import keep_manifest
from app.reading import asked_records, file_job, read_documents
from captures.manifest import MANIFEST, load_manifest
from captures.private import PrivateWords
from core.errors import CaptureError, UserError

_REMEDY = "Pack it again: python -m bench.pack_bundles"


BATCH = 125
"""Examples that one child reads: its start costs a second of CPU time."""

Made = tuple[Mapping[str, Any], str, dict[str, Any]]
"""Entry, content hash and answer of an example run."""


def made(entries: Iterable[Mapping[str, Any]]) -> Iterator[Made]:
    """Read examples (`app.demo.load.unpacked`); CaptureError for files with private fields."""
    given = list(entries)
    batches = [given[first : first + BATCH] for first in range(0, len(given), BATCH)]
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
    ):
        for answers in pool.map(partial(_read, Path(scratch)), batches):
            yield from answers


def _read(place: Path, entries: Sequence[Mapping[str, Any]]) -> list[Made]:
    runs = [given_of(entry, place) for entry in entries]
    surroundings: dict[str, Any] = {"rules": None, "peaks": {}, "salt": ""}
    found = []
    with read_documents([file_job(run.paths) for run in runs], surroundings, place) as documents:
        for entry, run, document in zip(entries, runs, documents, strict=True):
            assert run.content_hash is not None
            found.append((entry, run.content_hash, _answer(document, run.paths[0])))
    return found


def _answer(document: dict[str, Any], first: Path) -> dict[str, Any]:
    """Return a reader's document with its files by their names; CaptureError for private ones."""
    for capture in document["captures"]:
        capture["path"] = capture["tables"]["path"] = capture["file_name"]
        if capture["sha256"] != capture["source_sha256"]:
            raise CaptureError(first, f"{capture['file_name']} holds private fields", _REMEDY)
    if first.is_dir():
        with tempfile.TemporaryDirectory() as kept:
            keep_manifest(load_manifest(first), run_of(document, first), Path(kept), PrivateWords())
            if (Path(kept) / MANIFEST).read_bytes() != (first / MANIFEST).read_bytes():
                raise CaptureError(first / MANIFEST, "it is not as it is kept", _REMEDY)
    return document


def write(path: Path = ANSWERS) -> int:
    """Make all answers and write them; return how many there are."""
    with unpacked() as entries:
        archives = sorted({entry["archive"] for entry in entries if "archive" in entry})
        hashes = {name: archive_sha256(name) for name in archives}
        lines = [_line(*one) for one in made(entries)]
    text = "\n".join([f"{VERSION}", json.dumps(hashes), *lines])
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return len(lines)


def _line(entry: Mapping[str, Any], sha256: str, document: Mapping[str, Any]) -> str:
    head = {
        "content_hash": sha256,
        "archive": entry.get("archive"),
        "bundle": entry["bundle"].name if "archive" in entry else None,
        "records": asked_records(document),
    }
    return f"{json.dumps(head)}\t{json.dumps(document)}"


def differences(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what reading examples gives otherwise than the answers say."""
    kept = read_answers().by_hash
    told: list[str] = []
    for entry, sha256, document in made(entries):
        name = entry["name"]
        if sha256 not in kept:
            told.append(f"{name}: it has no answer")
            continue
        told += [f"{name}: {where}" for where in _differing(kept[sha256].document(), document, "")]
        if kept[sha256].records != asked_records(document):
            told.append(f"{name}: other records are asked for")
    return told


def _differing(known: Any, read: Any, where: str) -> Iterator[str]:
    """Give the places of two documents that differ."""
    if isinstance(known, dict) and isinstance(read, dict):
        for key in sorted({*known, *read}):
            yield from _differing(known.get(key), read.get(key), f"{where}.{key}".lstrip("."))
    elif isinstance(known, list) and isinstance(read, list) and len(known) == len(read):
        for number, pair in enumerate(zip(known, read, strict=True)):
            yield from _differing(*pair, f"{where}[{number}]")
    elif known != read and not (known != known and read != read):
        yield f"{where} is {str(known)[:60]} in the answers, and {str(read)[:60]} read"


def main(argv: list[str] | None = None) -> int:
    """Write the answers; with --check compare them with what reading gives."""
    parser = argparse.ArgumentParser(prog="python -m app.demo.answers", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="read all and compare; 1 if one differs"
    )
    options = parser.parse_args(argv)
    if options.check:
        with unpacked() as entries:
            found = differences(entries)
        print("\n".join(found[:50]) or "every answer is what reading gives")
        return 1 if found else 0
    print(f"{ANSWERS}: {write()} answers, {ANSWERS.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CaptureError, UserError) as exc:
        sys.exit(str(exc))

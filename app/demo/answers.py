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
from app.demo.load import ANSWERS, VERSION, batches, given_of, read_answers, unpacked
from app.kept_manifest import keep_manifest
from app.reading import file_job, read_documents
from captures.contents import content_hash
from captures.manifest import MANIFEST, load_manifest
from captures.private import PrivateWords
from core.errors import CaptureError, UserError

_REMEDY = "Pack it again: python -m bench.pack_bundles"


Made = tuple[str, str, dict[str, Any]]
"""Name, content hash and answer of an example run."""


def made(entries: Iterable[Mapping[str, Any]]) -> Iterator[Made]:
    """Read examples (`app.demo.load.unpacked`); CaptureError for files with private fields."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
    ):
        for answers in pool.map(partial(_read, Path(scratch)), batches(iter(entries))):
            yield from answers


def _read(place: Path, entries: Sequence[Mapping[str, Any]]) -> list[Made]:
    runs = [given_of(entry, place) for entry in entries]
    surroundings: dict[str, Any] = {"rules": None, "peaks": {}, "salt": ""}
    found = []
    with read_documents([file_job(run.paths) for run in runs], surroundings, place) as documents:
        for run, document in zip(runs, documents, strict=True):
            sha256 = content_hash(run.paths)
            assert sha256 is not None and run.name is not None
            found.append((run.name, sha256, _answer(document, run.paths[0])))
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
    lines = [f"{VERSION}"]
    with unpacked() as entries:
        lines += [f"{sha256} {json.dumps(answer)}" for _, sha256, answer in made(entries)]
    packed = lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
    path.write_bytes(packed)
    return len(lines) - 1


def differences(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what reading examples gives otherwise than the answers say."""
    kept = read_answers()
    told: list[str] = []
    for name, sha256, answer in made(entries):
        if sha256 in kept:
            told += [f"{name}: {where}" for where in _differing(kept[sha256], answer, "")]
        else:
            told.append(f"{name}: it has no answer")
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

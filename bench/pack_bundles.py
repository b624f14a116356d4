"""Pack bundles as example data: `python -m bench.pack_bundles OUT.tar.xz [FILE.json]... BUNDLE...`.

The archive holds a folder a bundle, each as an installation keeps it: without what is private and
what is not read again. Loading the examples then takes the files as they are. Equal bundles make an
equal archive; like stands by like in it, which packs best. `app/demo/demo.toml` names the archive.

The JSON files are what `python -m worker.measure --json` printed of the same GPUs: their noise
floors go into bundles made by a version that kept only the larger one.
"""

import gzip
import io
import json
import lzma
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from app.kept_manifest import keep_manifest
from app.reading import file_job, read_jobs
from captures.contents import file_sha256
from captures.manifest import MANIFEST, load_manifest
from captures.private import PrivateWords
from core.errors import AppError

FOLDERS = re.compile(r"(?<![\w/.])/(?:opt|tmp|root|home|workspace|work|mnt)/(?:[\w.+-]+/)*")
SALT = b"example data of Warpboard, 2026."
"""Of the hashes that stand for GPUs' UUIDs: equal in all archives, and nobody's own."""


def floors_of(files: list[Path]) -> dict[str, dict[str, float]]:
    """Return UUID -> kind of work -> noise floor, from `worker.measure`'s documents."""
    measured = [m for f in files for m in json.loads(f.read_text(encoding="utf-8"))["measured"]]
    return {
        m["gpu"]["uuid"]: {job: noise["floor_frac"] for job, noise in m["noise"].items()}
        for m in measured
    }


def cleaned(text: str, floors: dict[str, dict[str, float]]) -> str:
    """Return a manifest with noise floors, and without the GPU's UUID and folders in texts."""
    manifest = json.loads(text)
    gpu = manifest.get("gpu", {})
    if gpu_floors := floors.get(gpu.pop("uuid", None)):
        gpu.setdefault("noise_floors", gpu_floors)
    return FOLDERS.sub("", json.dumps(manifest))


def opened_up(path: Path) -> Path:
    """Unpack a file that gzip packed: a whole archive packs three times better."""
    if path.suffix != ".gz":
        return path
    plain = path.with_suffix("")
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    return plain


def keep(bundles: Sequence[Path], place: Path, floors: dict[str, dict[str, float]]) -> list[Path]:
    """Write to `place` each bundle as it is kept after its import; return the folders."""
    given = []
    for bundle in bundles:
        copy = place / "given" / bundle.name
        copy.mkdir(parents=True)
        for path in bundle.iterdir():
            shutil.copyfile(path, copy / path.name)
        text = cleaned((bundle / MANIFEST).read_text(encoding="utf-8"), floors)
        manifest = json.loads(text)
        for item in (item for entry in manifest["passes"] for item in entry["captures"]):
            path = opened_up(copy / item["file"])
            size = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
            item |= {"file": path.name, **size}
        (copy / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        given.append(copy)
    surroundings: dict[str, Any] = {"rules": None, "peaks": {}, "salt": SALT.hex()}
    kept = []
    with read_jobs([file_job([folder]) for folder in given], surroundings, place) as runs:
        for folder, run in zip(given, runs, strict=True):
            if isinstance(run, AppError):
                raise run
            target = place / "kept" / folder.name
            target.mkdir(parents=True)
            for capture in run.captures:
                os.replace(capture.path, target / capture.file_name)
            keep_manifest(load_manifest(folder), run, target, PrivateWords(salt=SALT))
            kept.append(target)
    return kept


def pack(root: Path, paths: Iterable[Path], target: Path) -> None:
    """Write the files, named as they lie below `root`, manifests first and then kind by kind."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w") as archive:
        for path in sorted(paths, key=lambda p: (*_kind(p), str(p))):
            content = path.read_bytes()
            member = tarfile.TarInfo(str(path.relative_to(root)))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    target.write_bytes(lzma.compress(unpacked.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def _kind(path: Path) -> tuple[bool, str]:
    return path.name != MANIFEST, path.name.partition(".")[2]


def main() -> int:
    target, *given = map(Path, sys.argv[1:])
    floors = floors_of([p for p in given if p.suffix == ".json"])
    bundles = sorted(p for p in given if p.suffix != ".json")
    with tempfile.TemporaryDirectory() as scratch:
        kept = keep(bundles, Path(scratch), floors)
        files = [path for folder in kept for path in folder.iterdir()]
        pack(Path(scratch) / "kept", files, target)
    print(f"{target}: {len(bundles)} bundles, {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

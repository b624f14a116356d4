"""Pack bundles as example data: `python bench/pack_bundles.py OUT.tar.xz [FILE.json]... BUNDLE...`.

What names the machine is left out (the GPU's UUID, folders in logs), and equal bundles make an
equal archive. The archive holds one folder a bundle; `app/demo/demo.toml` names it. The JSON files
are what `python -m worker.measure --json` printed of the same GPUs: their noise floors go into
bundles made by a version that kept only the larger one.
"""

import io
import json
import re
import sys
import tarfile
from pathlib import Path

FOLDERS = re.compile(r"(?<![\w/.])/(?:opt|tmp|root|home|workspace|work|mnt)/(?:[\w.+-]+/)*")


def floors_of(files: list[Path]) -> dict[str, dict[str, float]]:
    """Return UUID -> kind of work -> noise floor, from `worker.measure`'s documents."""
    measured = [m for f in files for m in json.loads(f.read_text(encoding="utf-8"))["measured"]]
    return {
        m["gpu"]["uuid"]: {job: noise["floor_frac"] for job, noise in m["noise"].items()}
        for m in measured
    }


def packed(path: Path, floors: dict[str, dict[str, float]]) -> bytes:
    """Return a file's bytes as they go into the archive."""
    if path.name == "manifest.json":
        manifest = json.loads(path.read_text(encoding="utf-8"))
        gpu = manifest.get("gpu", {})
        if gpu_floors := floors.get(gpu.pop("uuid", None)):
            gpu.setdefault("noise_floors", gpu_floors)
        return (FOLDERS.sub("", json.dumps(manifest, indent=1)) + "\n").encode()
    if path.suffix == ".txt":
        return FOLDERS.sub("", path.read_text(encoding="utf-8")).encode()
    return path.read_bytes()


def main() -> int:
    target, *given = map(Path, sys.argv[1:])
    floors = floors_of([p for p in given if p.suffix == ".json"])
    folders = [p for p in given if p.suffix != ".json"]
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for folder in sorted(folders):
            for path in sorted(folder.iterdir()):
                content = packed(path, floors)
                member = tarfile.TarInfo(f"{folder.name}/{path.name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    print(f"{target}: {len(folders)} bundles, {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Pack bundles as example data: `python bench/pack_bundles.py OUT.tar.xz BUNDLE_DIR...`.

What names the machine is left out (the GPU's UUID, folders in logs), and equal bundles make an
equal archive. The archive holds one folder a bundle; `app/demo/demo.toml` names it.
"""

import io
import json
import re
import sys
import tarfile
from pathlib import Path

FOLDERS = re.compile(r"(?<![\w/.])/(?:opt|tmp|root|home|workspace|work|mnt)/(?:[\w.+-]+/)*")


def packed(path: Path) -> bytes:
    """Return a file's bytes as they go into the archive."""
    if path.name == "manifest.json":
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest.get("gpu", {}).pop("uuid", None)
        return (FOLDERS.sub("", json.dumps(manifest, indent=1)) + "\n").encode()
    if path.suffix == ".txt":
        return FOLDERS.sub("", path.read_text(encoding="utf-8")).encode()
    return path.read_bytes()


def main() -> int:
    target, *folders = map(Path, sys.argv[1:])
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for folder in sorted(folders):
            for path in sorted(folder.iterdir()):
                content = packed(path)
                member = tarfile.TarInfo(f"{folder.name}/{path.name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    print(f"{target}: {len(folders)} bundles, {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

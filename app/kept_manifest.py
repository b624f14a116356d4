"""Keep a bundle's manifest beside its stored captures, so that the run can be read again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.rundata import AssembledRun
from captures.manifest import MANIFEST
from captures.private import PrivateWords
from captures.scrub.manifest import clean_manifest


def keep_manifest(
    manifest: Mapping[str, Any], run: AssembledRun, folder: Path, words: PrivateWords | None = None
) -> None:
    """Write the manifest with the hashes of what is stored, and what could not be read as warnings.

    `run` is what was read from the manifest's captures; `folder` holds them. With `words` it is
    cleaned of what is private.
    """
    if words is not None:
        manifest = clean_manifest(manifest, words)
    stored = {c.source_sha256: c for c in run.captures}
    unreadable = [w for w in run.data.warnings if w.warning.code == "capture_unreadable"]
    passes = []
    for entry in manifest["passes"]:
        kept = []
        for item in entry["captures"]:
            capture = stored.get(item["sha256"])
            if capture is not None:
                removed = {"private_removed": list(capture.private_removed)}
                stored_as = {"bytes": capture.num_bytes, "sha256": capture.sha256}
                kept.append({**item, **stored_as, **removed})
        lost = [
            {"code": w.warning.code, "message": w.warning.message}
            for w in unreadable
            if w.pass_name == entry["pass"]
        ]
        passes.append({**entry, "captures": kept, "warnings": [*entry.get("warnings", ()), *lost]})
    text = json.dumps({**manifest, "passes": passes})
    (folder / MANIFEST).write_text(text + "\n")

"""Write what the profiled jobs of `bench/measure_ranks.sh` say of their ranks, as one document.

    python -m bench.ranks.figures OUT_DIR [NAME] >docs/results/ranks-h200.json

NAME: an extended regular expression of the jobs. Their captures are too large for the example data:
this keeps the figures of each pass, by the product's own reading (`analysis.ranks`).
"""

import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.bundle import load_bundle
from analysis.capture_file import Staging
from analysis.ranks import ranks_of
from analysis.rundata import RunCapture
from captures.manifest import MANIFEST, load_manifest

KEPT = (
    *("num_kernels", "span_ns", "compute_ns", "communication_ns", "exposed_ns", "wait_ns"),
    *("idle_ns", "exposed_frac", "overlap_frac", "clock", "offset_ns", "residual_ns"),
)
"""Numbers of each rank."""
PARAMS = ("preset", "layers", "d_model", "batch", "seq_len", "dtype", "parallel", "gpus", "scaling")


def main() -> None:
    out, name = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "."
    folders = sorted(path.parent for path in out.glob(f"*/{MANIFEST}"))
    jobs = [figures(folder) for folder in folders if re.search(name, folder.name)]
    print(json.dumps({"command": "bench/measure_ranks.sh", "jobs": jobs}, indent=1))


def figures(folder: Path) -> dict[str, Any]:
    """Return the job of a bundle, its clean steps, and the ranks and collectives of each pass."""
    manifest = load_manifest(folder)
    clean = [p["result"] for p in manifest["passes"] if p["pass"] == "clean"]
    samples = [ns for result in clean for ns in result.get("samples_ns", ())]
    with tempfile.TemporaryDirectory() as staged:
        run = load_bundle(folder, Staging(folder=Path(staged)))
        passes = {
            name: pass_figures([c for c in run.captures if c.pass_name == name])
            for name in dict.fromkeys(c.pass_name for c in run.captures)
        }
    return {
        "name": folder.name,
        "params": {key: manifest["job"]["params"].get(key) for key in PARAMS},
        "gpu": manifest["gpu"].get("model"),
        "driver": manifest["gpu"].get("driver"),
        "torch": manifest["environment"].get("torch"),
        "started_at": manifest["started_at"],
        "step_ms": round(statistics.median(samples) / 1e6, 3),
        "num_steps": len(samples),
        "passes": passes,
    }


def pass_figures(captures: Sequence[RunCapture]) -> dict[str, Any]:
    """Return what the captures of one pass say of their ranks."""
    document = ranks_of(captures).document
    return {
        "num_steps": len(document["steps"]),
        "ranks": [{k: rank[k] for k in KEPT if k in rank} for rank in document["ranks"]],
        "collectives": document["collectives"],
    }


if __name__ == "__main__":
    main()

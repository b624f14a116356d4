"""Read runs from foreign files and assemble them: what `captures.sandbox` starts in its child.

The request: `jobs`, each with the `paths` of one run or the `stored` captures of one, `rules` and
`peaks` to assemble with, and the `salt` of hashed UUIDs. The answer of job N is the folder `N`:
`run.json` with its files, or `error.json`.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.assemble import assemble
from analysis.bundle import load_bundle, load_paths, run_of_captures
from analysis.capture_file import Staging, read_capture
from analysis.classify import load_user_rules
from analysis.row_limits import check_rows
from analysis.rundata import AssembledRun, RunData
from analysis.tables import CaptureKind
from analysis.transfer import write_run
from captures.manifest import MANIFEST
from core.errors import AppError, CaptureError, ToolUnavailableError
from core.gpus import imported_gpu, is_one_gpu, peak_values

LOG = logging.getLogger("warpboard.reading")
ERROR = "error.json"
UNEXPECTED = "its reader did not expect what it holds"
_BUG = "If the file is sound, report this with it"


def main(request: Mapping[str, Any], scratch: Path) -> None:
    """Answer every job of the request, one after the other."""
    for number, job in enumerate(request["jobs"]):
        folder = scratch / str(number)
        folder.mkdir()
        try:
            write_run(_read(job, folder, request), folder)
        except MemoryError:
            raise  # the limit of this process: it ends, and who started it says so
        except AppError as exc:
            _write_error(folder, exc)
        # A foreign file can bring a reader to any error; the border turns it into one of its own.
        except Exception as exc:
            LOG.exception("job %s", number)
            first = job["paths"][0] if job.get("paths") else "capture"
            where = f"{UNEXPECTED} ({type(exc).__name__}: {exc})"
            _write_error(folder, CaptureError(first, where, _BUG))
        (folder / "done").touch()


def _read(job: Mapping[str, Any], folder: Path, request: Mapping[str, Any]) -> AssembledRun:
    salt = bytes.fromhex(request.get("salt") or "")
    staging = Staging(folder=folder, keep_private=bool(job.get("keep_private")), salt=salt)
    if "stored" in job:
        data = _stored(Path(job["folder"]), job["stored"], staging)
    else:
        data = load_paths([Path(p) for p in job["paths"]], staging)
    model = data.gpu.get("model") or data.gpu.get("name")
    key = job.get("gpu_id") or imported_gpu(data.gpu)
    known = request.get("peaks", {}).get(key, {}) if is_one_gpu(key) else {}
    rules = load_user_rules(Path(request["rules"])) if request.get("rules") else ()
    own = peak_values(data.gpu.get("peaks") or {})
    check_rows(data)
    return assemble(data, user_rules=rules, peaks=own or known, gpu_model=model)


def _stored(folder: Path, rows: list[Mapping[str, Any]], staging: Staging) -> RunData:
    """Read the captures of a run again from where they are kept."""
    if (folder / MANIFEST).is_file():
        return load_bundle(folder, staging)
    captures = []
    for row in rows:
        path = folder / row["file_name"]
        if not path.is_file():
            raise CaptureError(path, "the stored capture is gone", "Import the file again")
        kind = CaptureKind(row["kind"])
        read = read_capture(path, staging, row["file_name"], kind=kind, pass_name=row["pass"])
        captures.append(replace(read, process=int(row["process"])))
    return run_of_captures(captures)


def _write_error(folder: Path, error: AppError) -> None:
    document: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, CaptureError):
        document |= {"path": error.path, "where": error.where, "remedy": error.remedy}
    if isinstance(error, ToolUnavailableError):
        document |= {"tool": error.tool, "why": error.why, "remedy": error.remedy}
    (folder / ERROR).write_text(json.dumps(document))

"""Do the jobs of one child, one after the other: a folder each, and what failed as a document."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import AppError, CaptureError, ToolUnavailableError

LOG = logging.getLogger("warpboard.reading")
ERROR, DONE = "error.json", "done"
UNEXPECTED = "its reader did not expect what it holds"
_BUG = "If the file is sound, report this with it"


def do_each(
    jobs: Sequence[Mapping[str, Any]],
    scratch: Path,
    do: Callable[[Mapping[str, Any], Path], None],
) -> None:
    """Do job N in the new folder `N`, which then holds DONE, and ERROR where it failed."""
    for number, job in enumerate(jobs):
        folder = scratch / str(number)
        folder.mkdir()
        try:
            do(job, folder)
        except (MemoryError, ChildProcessError):
            raise  # this process ends, and its parent reports the limit
        except AppError as exc:
            _write_error(folder, exc)
        # A foreign file can raise anything in a reader; here it becomes one CaptureError.
        except Exception as exc:
            LOG.exception("job %s", number)
            first = job["paths"][0] if job.get("paths") else "capture"
            where = f"{UNEXPECTED} ({type(exc).__name__}: {exc})"
            _write_error(folder, CaptureError(first, where, _BUG))
        (folder / DONE).touch()


def _write_error(folder: Path, error: AppError) -> None:
    document: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    if isinstance(error, CaptureError):
        document |= {"path": error.path, "where": error.where, "remedy": error.remedy}
    if isinstance(error, ToolUnavailableError):
        document |= {"tool": error.tool, "why": error.why, "remedy": error.remedy}
    (folder / ERROR).write_text(json.dumps(document))

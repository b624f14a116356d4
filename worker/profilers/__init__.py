"""The profilers by pass: whether the tool runs here, its command, and the captures it leaves.

Three passes have no tool: what they leave is what the program wrote itself.
"""

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from captures.kinds import CaptureKind
from core.errors import CaptureError
from worker.outcomes import Outcome, OutcomeCode
from worker.profilers.ncu import PROFILER as NCU
from worker.profilers.nsys import PROFILER as NSYS
from worker.profilers.spec import Capture, Collected, PassContext, ProfilerSpec
from worker.tools import Tool

KINDS = {
    "torch_trace": ("torch_trace",),
    "memory_snapshot": ("memory_snapshot", "torch_memory"),
}
"""What programs call the captures of each kind."""
NOT_POSSIBLE_HERE = "memory_history_unavailable"
MAX_REWRITE_BYTES = 512 << 20
"""A larger snapshot is shipped as it is: loading it takes several times its size in memory."""


def written_by_program(
    context: PassContext,
    result: Mapping[str, Any] | None,
    *,
    kind: str,
    suffix: str,
) -> Collected:
    """Return the captures of `kind`, moved into the bundle as `PASS-PROCESS[-rankN][-N].SUFFIX`.

    An absent result line gives nothing; a result line without the capture, or with one that does
    not lie in the folder of the pass, is `tool_crashed`.
    """
    entries = [c for c in (result or {}).get("captures", ()) if c.get("kind") in KINDS[kind]]
    captures: list[Capture] = []
    for number, entry in enumerate(entries):
        source = context.work_dir / str(entry.get("path"))
        target = context.capture_path(suffix, number)
        try:
            if _is_there(source, context.work_dir):
                captures.append(_stored(context, source, target, CaptureKind(kind), result or {}))
        except CaptureError as exc:
            outcome = Outcome(code=OutcomeCode.TOOL_CRASHED, message=str(exc))
            return Collected(captures=tuple(captures), outcome=outcome)
    if captures or result is None or result.get("status") != "ok":
        return Collected(captures=tuple(captures))
    if any(w.get("code") == NOT_POSSIBLE_HERE for w in result.get("warnings", ())):
        return Collected()
    return Collected(outcome=_no_capture(result))


def _is_there(source: Path, folder: Path) -> bool:
    """Say whether the program wrote the file; CaptureError for what is not its own to give."""
    if not os.path.lexists(source):
        return False
    inside = Path(os.path.realpath(source)).relative_to
    try:
        inside(os.path.realpath(folder))
        if not stat.S_ISREG(source.lstat().st_mode):
            raise ValueError
    except ValueError:
        where = "the program names it as its capture, and it is no file in the folder of the pass"
        raise CaptureError(source, where, "A capture is written into that folder") from None
    return True


def _stored(
    context: PassContext, source: Path, target: Path, kind: CaptureKind, result: Mapping[str, Any]
) -> Capture:
    tool = {"tool": "torch", "tool_version": result.get("environment", {}).get("torch")}
    if kind is CaptureKind.MEMORY_SNAPSHOT and source.stat().st_size > MAX_REWRITE_BYTES:
        shutil.copyfile(source, target)
        return context.capture(target, kind, **tool)
    return context.store(source, target, kind, **tool)


def _no_capture(result: Mapping[str, Any]) -> Outcome:
    why = next(
        (str(w.get("message")) for w in result.get("warnings", ())), "no capture was written"
    )
    return Outcome(code=OutcomeCode.TOOL_CRASHED, message=why)


def _alone(
    name: str, tool: str, captures: Callable[[PassContext, Mapping[str, Any] | None], Collected]
) -> ProfilerSpec:
    return ProfilerSpec(
        name=name,
        needs_tool=False,
        probe=lambda: Tool(name=tool),
        command=lambda context: context.program(),
        captures=captures,
    )


CLEAN = _alone("clean", "none", lambda context, result: Collected())
MEMORY = _alone(
    "memory", "torch", partial(written_by_program, kind="memory_snapshot", suffix="pickle")
)
TRACE = _alone("trace", "torch", partial(written_by_program, kind="torch_trace", suffix="json.gz"))

PROFILERS: dict[str, ProfilerSpec] = {p.name: p for p in (CLEAN, NSYS, NCU, MEMORY, TRACE)}
"""By the name of their pass."""

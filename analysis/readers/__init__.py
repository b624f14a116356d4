"""Readers: one capture format a module, each path -> `CaptureTables`, found by content."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.readers.detect import check_kind, detect
from analysis.tables import CaptureKind, CaptureTables
from captures.contents import state
from captures.opening import reading
from captures.private import PrivateWords
from core.errors import CaptureError

if TYPE_CHECKING:
    from analysis.trace.model import Trace

__all__ = ["check_kind", "detect", "prepare_timelines", "read", "read_records"]


def read(
    path: Path,
    kind: CaptureKind | None = None,
    *,
    is_own_copy: bool = False,
    scratch: Path | None = None,
    words: PrivateWords | None = None,
) -> CaptureTables:
    """Return everything in one capture; the kind is found by content unless given.

    `is_own_copy`: `captures.scrub` has just written the file, from a source that it checked.
    `scratch`: folder for temporary files of large captures; the system's own if None.
    `words`: clean by them what a report of NVIDIA's tools gives, whose file holds private fields.
    Raises CaptureError (file, place, remedy) for anything that cannot be read right, and
    ToolUnavailableError where a report needs a tool that this host lacks.
    """
    before = state(path)
    chosen = kind or detect(path)
    if chosen is CaptureKind.BUNDLE:
        raise CaptureError(path, "this is a bundle of captures", "Import the folder as a whole")
    with reading(path):
        if words is not None and chosen in (CaptureKind.NSYS_REP, CaptureKind.NCU_REP):
            tables = _read_report(path, chosen, words)
        else:
            tables = _reader(chosen, is_own_copy=is_own_copy, scratch=scratch)(path)
    if state(path) != before:
        raise CaptureError(
            path, "the file changed while it was being read", "Import it once it is complete"
        )
    return tables


def prepare_timelines() -> None:
    """Import and compile what reading a timeline needs: forked processes then begin with it."""
    from analysis.classify.rule import compile_rules

    compile_rules()
    for kind in (CaptureKind.NSYS_SQLITE, CaptureKind.TORCH_TRACE):
        _reader(kind, is_own_copy=True, scratch=None)


def read_records(path: Path, kind: CaptureKind, *, scratch: Path | None = None) -> CaptureTables:
    """Return the tables RECORDS of a capture that `captures.scrub` wrote, and perhaps others.

    Those that `read` gives too are the same, in less time: no number is worked out where the format
    allows it.
    """
    from analysis.trace.records import records_of

    with reading(path):
        trace = _trace(path, kind)
        if trace is None:
            return read(path, kind, is_own_copy=True, scratch=scratch)
        return CaptureTables(kind=kind, path=path, tool="", **records_of(trace, scratch))


def _trace(path: Path, kind: CaptureKind) -> "Trace | None":
    """Return a timeline; None for what is read another way."""
    if kind is CaptureKind.NSYS_SQLITE:
        from analysis.readers.nsys.tables import load_for_records

        return load_for_records(path)
    if kind is CaptureKind.TORCH_TRACE:
        from analysis.readers.torch_trace.load import load_trace

        return load_trace(path).trace
    return None


def _read_report(path: Path, kind: CaptureKind, words: PrivateWords) -> CaptureTables:
    if kind is CaptureKind.NSYS_REP:
        from analysis.readers.nsys.report import read_nsys_rep

        return read_nsys_rep(path, words=words)
    from analysis.readers.ncu.report import read_ncu_rep

    return read_ncu_rep(path, words=words)


def _reader(
    kind: CaptureKind, *, is_own_copy: bool, scratch: Path | None
) -> Callable[[Path], CaptureTables]:
    """Import one reader only: the command line must start fast."""
    if kind is CaptureKind.NSYS_SQLITE:
        from analysis.readers.nsys.export import read_nsys_sqlite

        return partial(read_nsys_sqlite, is_sound=is_own_copy, scratch=scratch)
    if kind is CaptureKind.NSYS_REP:
        from analysis.readers.nsys.report import read_nsys_rep

        return read_nsys_rep
    if kind is CaptureKind.NCU_REP:
        from analysis.readers.ncu.report import read_ncu_rep

        return read_ncu_rep
    if kind is CaptureKind.NSYS_CSV:
        from analysis.readers.nsys.stats_csv import read_nsys_csv as reader
    elif kind is CaptureKind.NCU_CSV:
        from analysis.readers.ncu.csv import read_ncu_csv as reader
    elif kind is CaptureKind.NCU_LOG:
        from analysis.readers.ncu.log import read_ncu_log as reader
    elif kind is CaptureKind.NCU_SOURCE:
        from analysis.readers.ncu.details import read_ncu_source as reader
    elif kind is CaptureKind.TORCH_TRACE:
        from analysis.readers.torch_trace.read import read_torch_trace

        return partial(read_torch_trace, scratch=scratch)
    elif kind is CaptureKind.MEMORY_SNAPSHOT:
        from analysis.readers.memory.snapshot import read_memory_snapshot

        return partial(read_memory_snapshot, is_sound=is_own_copy)
    else:
        from analysis.readers.latency_csv import read_latency_csv as reader
    return reader

"""Where a program was when it called CUDA, and when it was sampled: an export's call stacks.

`CUDA_CALLCHAINS` holds the frames of CUDA calls (`--cudabacktrace`, `--python-backtrace`), one row
a frame with the innermost at depth 0; `SAMPLING_CALLCHAINS` those of samples of the CPU
(`COMPOSITE_EVENTS`). Many stacks are few distinct ones: they become one tree of frames. Frames
without a symbol are left out, and the interpreter's own functions in a row are one frame.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.readers.nsys.columns import MISSING, Batch, ColumnBatches, DroppedRows, Ints
from captures.nsys_database import NsysDatabase

OF_CALLS = "CUDA_CALLCHAINS"
OF_SAMPLES = "SAMPLING_CALLCHAINS"
SAMPLES = "COMPOSITE_EVENTS"
MAX_DEPTH = 256
_FRAME = ("id", "symbol", "stackDepth")
_INTERPRETER = re.compile(
    r"_?Py[A-Z_]\w*|_?PyEval\w*|(cfunction|method|slot_tp|builtin|type|object|partial|wrap|classmethod"
    r"|function|run|pymain|instancemethod|property|gen|cm|meth)_\w*(\.\w+)*|vectorcall\w*"
)
INTERPRETER = "(Python interpreter)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBacktraces:
    """The stacks of an export as a tree; names are still ids of StringIds."""

    parent: Ints
    "Row of the frame that called it; MISSING at the top. A parent comes before what it calls."
    symbol: Ints
    chain_ids: Ints
    "Ids of the stacks of calls, in order."
    chain_frames: Ints
    "The innermost frame of each."
    sample_ns: Ints
    "In order."
    sample_thread: Ints
    "globalTid."
    sample_frame: Ints


_NONE = np.empty(0, np.int64)
NO_BACKTRACES = FoundBacktraces(
    parent=_NONE,
    symbol=_NONE,
    chain_ids=_NONE,
    chain_frames=_NONE,
    sample_ns=_NONE,
    sample_thread=_NONE,
    sample_frame=_NONE,
)


def load_backtraces(database: NsysDatabase, notes: DroppedRows) -> FoundBacktraces:
    """Read the stacks of calls and of samples; without such tables nothing."""
    calls = _frames(database, OF_CALLS, notes)
    samples = _frames(database, OF_SAMPLES, notes)
    owner = np.concatenate([calls[0], samples[0] + _next_id(calls[0])])
    pairs = zip(calls[1:], samples[1:], strict=True)
    parent, symbol, ids, frames = _tree(owner, *(np.concatenate(pair) for pair in pairs))
    split = np.searchsorted(ids, _next_id(calls[0]))
    times = _sample_times(database, notes) if len(ids) > split else _NO_SAMPLES
    known = np.append(ids[split:] - _next_id(calls[0]), MISSING)
    place = np.searchsorted(known[:-1], times[0])
    has_frames = known[place] == times[0]
    order = np.argsort(times[1][has_frames], kind="stable")
    return FoundBacktraces(
        parent=parent,
        symbol=symbol,
        chain_ids=ids[:split],
        chain_frames=frames[:split],
        sample_ns=times[1][has_frames][order],
        sample_thread=times[2][has_frames][order],
        sample_frame=frames[split:][place[has_frames]][order],
    )


_NONE = np.empty(0, np.int64)
_NO_SAMPLES = (_NONE, _NONE, _NONE)


def _next_id(ids: Ints) -> int:
    return int(ids.max()) + 1 if len(ids) else 0


def _read(
    database: NsysDatabase,
    table: str,
    required: tuple[str, ...],
    extra: tuple[str, ...],
    notes: DroppedRows,
) -> Iterable[Batch]:
    batches = ColumnBatches(database=database, table=table, required=required, extra=extra)
    yield from batches
    batches.note_in(notes)


def _frames(database: NsysDatabase, table: str, notes: DroppedRows) -> tuple[Ints, Ints, Ints]:
    """Return the stack, depth and symbol of each resolved frame."""
    parts: list[tuple[Ints, Ints, Ints]] = []
    for batch in _read(database, table, _FRAME, ("unresolved",), notes):
        depth = batch["stackDepth"]
        kept = (batch["unresolved"] != 1) & (depth >= 0) & (depth < MAX_DEPTH) & (batch["id"] >= 0)
        kept &= batch["id"] < np.iinfo(np.int64).max // 4
        parts.append((batch["id"][kept], depth[kept], batch["symbol"][kept]))
    if not parts:
        return _NO_SAMPLES
    ids, depths, symbols = (np.concatenate(part) for part in zip(*parts, strict=True))
    return ids, depths, symbols


def _sample_times(database: NsysDatabase, notes: DroppedRows) -> tuple[Ints, Ints, Ints]:
    batches = [
        (batch["id"], batch["start"], batch["globalTid"])
        for batch in _read(database, SAMPLES, ("id", "start", "globalTid"), (), notes)
    ]
    if not batches:
        return _NO_SAMPLES
    ids, times, threads = (np.concatenate(part) for part in zip(*batches, strict=True))
    return ids, times, threads


def _tree(owner: Ints, depth: Ints, symbol: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return parents and symbols of the tree's frames, and each stack with its innermost frame.

    One level after the other from the outermost: equal symbols under one frame are one frame.
    """
    order = np.lexsort((-depth, owner))
    owner, symbol = owner[order], symbol[order]
    ids, first = np.unique(owner, return_index=True)
    length = np.diff(np.append(first, len(owner)))
    at = np.full(len(ids), MISSING, np.int64)
    parents: list[Ints] = []
    symbols: list[Ints] = []
    num = 0
    for level in range(int(length.max(initial=0))):
        deep = np.flatnonzero(length > level)
        pairs = np.stack([at[deep], symbol[first[deep] + level]])
        frames, row = np.unique(pairs, axis=1, return_inverse=True)
        at[deep] = num + row.reshape(-1)
        parents.append(frames[0])
        symbols.append(frames[1])
        num += frames.shape[1]
    joined = [np.concatenate(part) if part else _NONE for part in (parents, symbols)]
    return joined[0], joined[1], ids, at


def frame_name(symbol: int, names: Mapping[int, str]) -> str:
    """Return what a frame is called; the interpreter's own functions have one name."""
    name = names.get(symbol, "(no symbol)")
    return INTERPRETER if _INTERPRETER.fullmatch(name) else name

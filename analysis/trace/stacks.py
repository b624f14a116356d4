"""Stacks of host ranges: which names lie around each range, from the outermost.

Ranges with the same names around them share one stack; running numbers count as one name, so that
the iterations of a loop fall together.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.trace.model import MISSING, Int32s, Int64s, RangeKind, Trace
from analysis.trace.ranges import levels

_NUMBER = re.compile(r"(?<=[A-Za-z_#: ])\d+$|(?<=#)\d+")
_ADDRESS = re.compile(r" of [^<>]* at 0x[0-9a-f]+(?=>)")
_PYTHON_PATH = re.compile(r"^.*/(?=[^/]+\.py\(\d+\): )")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """Distinct stacks; a row is one range name under the stack of another row."""

    parent: Int64s
    "Row of the stack around it; MISSING at the top. A parent comes before what it holds."
    name: tuple[str, ...]
    kind: Int64s
    "RangeKind."
    of_range: Int64s
    "Stack of each host range; one more, MISSING, at the end."


def range_stacks(trace: Trace) -> Stacks:
    """Return the stack of every host range."""
    ranges = trace.host_ranges
    texts: dict[str, int] = {}
    name_of = np.array([texts.setdefault(stack_name(n), len(texts)) for n in trace.names], np.int64)
    of_range = np.full(len(ranges) + 1, MISSING, np.int64)
    parents: list[Int64s] = []
    names: list[Int64s] = []
    kinds: list[Int64s] = []
    num = 0
    for members in (np.flatnonzero(ranges.parent < 0), *levels(ranges)):
        if not len(members):
            continue
        above = of_range[ranges.parent[members]]
        key = (above + 1) * max(len(texts), 1) + name_of[ranges.name[members]]
        kept, row, stack = np.unique(key, return_index=True, return_inverse=True)
        of_range[members] = num + stack
        parents.append(above[row])
        names.append(name_of[ranges.name[members[row]]])
        kinds.append(ranges.kind[members[row]].astype(np.int64))
        num += len(kept)
    known = list(texts)
    return Stacks(
        parent=_joined(parents),
        name=tuple(known[i] for i in _joined(names).tolist()),
        kind=_joined(kinds),
        of_range=of_range,
    )


def with_frames(
    trace: Trace, stacks: Stacks, stack: Int64s, frame: Int64s
) -> tuple[Stacks, Int64s]:
    """Return stacks with the frames of backtraces in them, and the new stack of each pair.

    The program's own ranges lie outside the frames, operators inside: a frame calls the operator.
    """
    known = trace.backtraces
    if known is None or not (frame >= 0).any():
        return stacks, stack
    parent, name, kind = stacks.parent.tolist(), list(stacks.name), stacks.kind.tolist()
    rows: dict[tuple[int, str], int] = {}

    def below(above: int, text: str, of_kind: int) -> int:
        row = rows.setdefault((above, text), len(parent))
        if row == len(parent):
            parent.append(above)
            name.append(text)
            kind.append(of_kind)
        return row

    pairs, which = np.unique(np.stack([stack, frame]), axis=1, return_inverse=True)
    frame_of = np.empty(pairs.shape[1], np.int64)
    for i, (row, innermost) in enumerate(pairs.T.tolist()):
        ranges = [(stacks.name[r], int(stacks.kind[r])) for r in _up(stacks.parent, row)]
        frames = [trace.names[int(known.name[r])] for r in _up(known.parent, innermost)]
        inner = next((n for n, (_, k) in enumerate(ranges) if k == RangeKind.OPERATOR), len(ranges))
        calls = [(stack_name(f), int(RangeKind.PYTHON)) for f in _told(frames)]
        at = MISSING
        for text, of_kind in (*ranges[:inner], *calls, *ranges[inner:]):
            at = below(at, text, of_kind)
        frame_of[i] = at
    grown = Stacks(
        parent=np.array(parent, np.int64),
        name=tuple(name),
        kind=np.array(kind, np.int64),
        of_range=stacks.of_range,
    )
    return grown, frame_of[which.reshape(-1)]


def _up(parent: Int64s, row: int) -> list[int]:
    """Return the rows from the top down to one."""
    rows: list[int] = []
    while row >= 0:
        rows.append(row)
        row = int(parent[row])
    return rows[::-1]


def _told(frames: list[str]) -> list[str]:
    """Leave out remarks of the profiler (`[Broken backtraces]`), and repeats one after another."""
    named = [f for f in frames if not f.startswith("[")]
    return [f for i, f in enumerate(named) if not i or f != named[i - 1]]


def stack_name(name: str) -> str:
    """Return a range's name without a running number, an address, or folders of a Python file."""
    return _NUMBER.sub("*", _ADDRESS.sub("", _PYTHON_PATH.sub("", name)))


def _joined(parts: Sequence[Int64s | Int32s]) -> Int64s:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

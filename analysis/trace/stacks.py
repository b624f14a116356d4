"""Stacks of host ranges: which names lie around each range, from the outermost.

Ranges with the same names around them share one stack; running numbers count as one name, so that
the iterations of a loop fall together.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.trace.model import MISSING, Int32s, Int64s, Trace
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


def stack_name(name: str) -> str:
    """Return a range's name without a running number, an address, or folders of a Python file."""
    return _NUMBER.sub("*", _ADDRESS.sub("", _PYTHON_PATH.sub("", name)))


def _joined(parts: Sequence[Int64s | Int32s]) -> Int64s:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

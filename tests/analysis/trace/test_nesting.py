"""Parents and depths of host ranges, against a plain stack."""

import numpy as np
import pytest

from analysis.trace.model import HostRanges, empty_columns
from analysis.trace.nesting import depths, innermost, nesting_order, parents


def _by_stack(rows: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Return (parent, depth) of ranges (thread, start, end) in order, one at a time."""
    answer: list[tuple[int, int]] = []
    stack: list[int] = []
    for row, (thread, _, end) in enumerate(rows):
        while stack and (rows[stack[-1]][0] != thread or rows[stack[-1]][2] < end):
            stack.pop()
        answer.append((stack[-1] if stack else -1, len(stack)))
        stack.append(row)
    return answer


def _nested(rows: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    thread, start, end = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    order = nesting_order(start, end, thread)
    parent = parents(end[order], thread[order])
    return list(zip(parent.tolist(), depths(parent).tolist(), strict=True))


def test_children_siblings_and_threads():
    rows = [(0, 0, 100), (0, 10, 20), (0, 30, 60), (0, 40, 50), (1, 15, 18)]
    assert _nested(rows) == [(-1, 0), (0, 1), (0, 1), (2, 2), (-1, 0)]


def test_a_partial_overlap_is_no_child():
    assert _nested([(0, 0, 10), (0, 5, 15), (0, 6, 9)]) == [(-1, 0), (-1, 0), (1, 1)]


def test_equal_ranges_nest_in_file_order():
    assert _nested([(0, 0, 10), (0, 0, 10)]) == [(-1, 0), (0, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_random_ranges_agree_with_a_stack(seed):
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 60, 300)
    rows = zip(rng.integers(0, 3, 300), start, start + rng.integers(0, 40, 300), strict=True)
    ordered = sorted(((int(t), int(s), int(e)) for t, s, e in rows), key=lambda r: (*r[:2], -r[2]))
    assert _nested(ordered) == _by_stack(ordered)


def test_a_callee_that_ends_late_by_rounding_is_a_child_and_the_next_call_is_not():
    thread, start, end = (
        np.array(c, np.int64) for c in ([0] * 4, [0, 10, 20, 21], [20, 21, 30, 25])
    )

    parent = parents(end, thread, start_ns=start, rounding_ns=2)

    assert parent.tolist() == [-1, 0, -1, 2]


def test_no_times_lie_in_no_range():
    nothing = np.empty(0, np.int32)
    assert innermost(empty_columns(HostRanges), nothing, nothing.astype(np.int64)).tolist() == []

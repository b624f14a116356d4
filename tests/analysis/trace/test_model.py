"""The event tables: missing values, cutting, lengths."""

import numpy as np
import pytest

from analysis.trace.model import (
    MISSING,
    Collectives,
    GpuOps,
    HostRanges,
    empty_columns,
    make_columns,
)


def test_columns_not_given_are_missing_but_times_and_flags():
    ops = make_columns(GpuOps, 2, start_ns=[5, 9], end_ns=[7, 12])

    assert ops.launch.tolist() == [MISSING, MISSING]
    assert ops.kind.tolist() == [0, 0]
    assert (ops.end_ns - ops.start_ns).tolist() == [2, 3]


def test_take_cuts_every_column_alike():
    ops = make_columns(GpuOps, 3, start_ns=[1, 2, 3], label=[7, 8, 9])

    kept = ops.take(np.array([True, False, True]))

    assert (kept.start_ns.tolist(), kept.label.tolist(), len(kept)) == ([1, 3], [7, 9], 2)


def test_a_column_of_another_length_is_refused():
    with pytest.raises(ValueError, match="label has 1 rows, not 2"):
        make_columns(GpuOps, 2, label=[0])


def test_empty_table_has_no_rows():
    assert len(empty_columns(HostRanges)) == 0


def test_a_collective_without_recorded_arguments_has_them_missing():
    collectives = make_columns(Collectives, 1, op=[4], name=[0])

    assert (collectives.op.tolist(), collectives.host_range.tolist()) == ([4], [MISSING])
    assert collectives.group_size.tolist() == collectives.ranks.tolist() == [MISSING]

import itertools

import numpy as np
import pytest

from analysis.intervals import (
    SliceMin,
    last_started,
    merge,
    overlap_between_ns,
    overlap_ns,
    union_of_each_ns,
)


def ints(*values):
    return np.array(values, np.int64)


def test_union_counts_overlaps_once_and_keeps_negative_times():
    starts, ends = merge(ints(-10, 5, 0), ints(-2, 8, 6))
    assert (starts.tolist(), ends.tolist()) == ([-10, 0], [-2, 8])


def test_touching_intervals_become_one():
    starts, ends = merge(ints(0, 5, 20), ints(5, 9, 21))
    assert (starts.tolist(), ends.tolist()) == ([0, 20], [9, 21])


def test_union_of_nothing_is_nothing():
    assert [len(part) for part in merge(ints(), ints())] == [0, 0]


def test_overlap_is_per_window():
    found = overlap_ns(ints(0, 10), ints(5, 20), ints(-5, 3, 6, 0), ints(3, 12, 9, 100))
    assert found.tolist() == [3, 4, 0, 15]


def test_slice_minimum_agrees_with_numpy_on_random_slices():
    random = np.random.default_rng(7)
    values = random.integers(-1000, 1000, 1001)
    first = random.integers(0, 1001, 400)
    last = np.minimum(first + random.integers(1, 400, 400), 1001)
    expected = [values[a:b].min() for a, b in zip(first, last, strict=True)]
    assert SliceMin.of(values).query(first, last).tolist() == expected


def test_slice_minimum_of_an_empty_slice_is_the_largest_integer():
    found = SliceMin.of(ints(3, 1)).query(np.array([1]), np.array([1]))
    assert found.tolist() == [np.iinfo(np.int64).max]


@pytest.mark.parametrize("seed", range(5))
def test_overlap_between_times_is_the_time_that_is_covered(seed):
    rng = np.random.default_rng(seed)
    starts, ends = merge(*np.sort(rng.integers(0, 200, (2, 12)), axis=0))
    is_covered = np.zeros(220, bool)
    for start, end in zip(starts, ends, strict=True):
        is_covered[start:end] = True
    times = np.unique(rng.integers(0, 220, 30))
    expected = [is_covered[a:b].sum() for a, b in itertools.pairwise(times)]
    assert overlap_between_ns(starts, ends, times).tolist() == expected
    assert overlap_between_ns(*merge(ints(), ints()), times).tolist() == [0] * (len(times) - 1)


@pytest.mark.parametrize("num_times", [0, 3, 200])
@pytest.mark.parametrize("seed", range(4))
def test_the_last_start_before_each_time_is_found_from_either_side(seed, num_times):
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.integers(0, 40, 20))
    for times in (rng.integers(-5, 50, num_times), np.sort(rng.integers(-5, 50, num_times))):
        by_hand = [sum(s <= t for s in starts.tolist()) - 1 for t in times.tolist()]
        assert last_started(starts, times).tolist() == by_hand
    assert last_started(ints(), ints(1, 2)).tolist() == [-1, -1]


@pytest.mark.parametrize("seed", range(4))
def test_unions_of_groups_do_not_depend_on_the_order_of_intervals(seed):
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(0, 5, 60))
    start = np.sort(rng.integers(0, 300, 60))
    end = start + rng.integers(0, 30, 60)
    by_hand = [
        len(
            {
                t
                for g, a, b in zip(group, start, end, strict=True)
                if g == number
                for t in range(a, b)
            }
        )
        for number in range(6)
    ]
    order = rng.permutation(60)
    assert union_of_each_ns(group, start, end, 6).tolist() == by_hand
    assert union_of_each_ns(group[order], start[order], end[order], 6).tolist() == by_hand

"""Which ranges get which operations, by hand and against a slow reading of the rule."""

from collections import defaultdict
from pathlib import Path

import pytest

from analysis.tables import CaptureKind, CaptureTables
from analysis.trace.model import OpKind, RangeKind, Trace
from analysis.trace.summary import tables_of
from tests.analysis.trace.made import launches, seeded_trace, trace

MAIN, AUTOGRAD, LOADER = 0, 1, 2


def tables(made: Trace) -> CaptureTables:
    return tables_of(made, kind=CaptureKind.NSYS_SQLITE, path=Path("x"), tool="nsys")


def kernels_by_path(made: Trace) -> dict[str, int]:
    phases = tables(made).phases
    return dict(zip(phases["path"], phases["num_kernels"].tolist(), strict=True))


def codes(made: Trace) -> set[str]:
    return {w.code for w in tables(made).warnings}


def backward_step(*more_ranges):
    """A step in which the main thread launches one kernel and autograd's thread two."""
    return trace(
        ranges=[("ProfilerStep#1", 0, 100, MAIN), *more_ranges],
        calls=launches((10, MAIN), (40, AUTOGRAD), (60, AUTOGRAD)),
        ops=[(20, 30, 0), (50, 55, 1), (70, 75, 2)],
    )


def test_autograds_kernels_belong_to_the_annotation_around_their_launch():
    made = backward_step(("forward", 5, 20, MAIN))
    assert kernels_by_path(made) == {"ProfilerStep#1": 3, "ProfilerStep#1/forward": 1}
    phases = tables(made).phases.set_index("path")
    assert phases.loc["ProfilerStep#1", "attribution"] == "process_time"
    assert phases.loc["ProfilerStep#1/forward", "attribution"] == "launch_thread"


def test_operators_and_libraries_on_autograds_thread_do_not_keep_its_kernels():
    made = backward_step(
        ("aten::mm", 38, 45, AUTOGRAD, RangeKind.OPERATOR),
        ("NCCL:ncclAllReduce", 58, 65, AUTOGRAD, RangeKind.LIBRARY),
    )
    assert kernels_by_path(made) == {"ProfilerStep#1": 3, "NCCL:ncclAllReduce": 1}


def test_operators_are_no_phases_and_hide_none():
    made = trace(
        ranges=[
            ("forward", 0, 100, MAIN),
            ("aten::linear", 5, 50, MAIN, RangeKind.OPERATOR),
            ("attention", 8, 40, MAIN),
        ],
        calls=launches((10, MAIN)),
        ops=[(20, 30, 0)],
    )
    assert kernels_by_path(made) == {"forward": 1, "forward/attention": 1}


def test_two_annotating_threads_leave_the_kernels_to_none_and_say_so():
    made = backward_step(("step", 0, 100, LOADER))
    assert kernels_by_path(made) == {"ProfilerStep#1": 1, "step": 0}
    assert "ambiguous_ranges" in codes(made)


def test_a_range_in_the_measured_part_goes_before_another_threads():
    made = backward_step(("loader", 0, 100, LOADER), ("BENCHMARK", -5, 200, MAIN))
    assert kernels_by_path(made)["BENCHMARK"] == 3
    assert kernels_by_path(made)["loader"] == 0


def test_copies_of_a_thread_that_runs_no_kernel_stay_without_a_range():
    made = trace(
        ranges=[("step", 0, 100, MAIN)],
        calls=[*launches((10, MAIN)), ("cudaMemcpyAsync", 20, 22, LOADER)],
        ops=[(20, 30, 0), (40, 90, 1, OpKind.MEMCPY)],
    )
    assert tables(made).phases["projected_ns"].tolist() == [10]


def test_another_processs_range_takes_nothing():
    made = trace(
        ranges=[("step", 0, 100, 0)],
        calls=launches((10, 1)),
        ops=[(20, 30, 0)],
        thread_process=(0, 1),
    )
    assert kernels_by_path(made) == {"step": 0}


def test_without_any_launch_an_operation_belongs_to_the_range_it_began_in():
    made = trace(
        ranges=[("a", 0, 50, MAIN), ("b", 50, 100, MAIN)], ops=[(10, 20, -1), (45, 70, -1)]
    )
    assert kernels_by_path(made) == {"a": 2, "b": 0}
    assert "ranges_by_device_time" in codes(made)


def test_a_name_with_a_slash_is_another_phase_than_a_range_in_a_range():
    made = trace(
        ranges=[("layers/0", 0, 100, MAIN), ("layers", 200, 300, MAIN), ("0", 210, 260, MAIN)],
        calls=launches((10, MAIN), (220, MAIN)),
        ops=[(12, 17, 0), (222, 229, 1)],
    )
    phases = tables(made).phases
    assert phases["kernel_ns"].tolist() == [5, 7, 7]
    assert phases["path"].is_unique


def slow_paths(made: Trace) -> list[str]:
    """Return the path of each range: the nearest range before it that contains it is its parent."""
    ranges = made.host_ranges
    paths: list[str] = []
    for row in range(len(ranges)):
        around = [
            other
            for other in range(row)
            if ranges.thread[other] == ranges.thread[row]
            and ranges.end_ns[other] >= ranges.end_ns[row]
        ]
        name = made.names[ranges.name[row]]
        paths.append(f"{paths[around[-1]]}/{name}" if around else name)
    return paths


def by_definition(made: Trace) -> dict[str, tuple[int, int]]:
    """Return kernels and kernel ns by path: every range is asked for every kernel."""
    ranges, calls, ops = made.host_ranges, made.host_calls, made.gpu_ops
    paths = slow_paths(made)
    found: dict[str, set[int]] = {path: set() for path in paths}
    for op, call in enumerate(ops.launch.tolist()):
        around: dict[int, list[str]] = defaultdict(list)
        for row, path in enumerate(paths):
            begins_inside = ranges.start_ns[row] <= calls.start_ns[call]
            if begins_inside and calls.end_ns[call] <= ranges.end_ns[row]:
                around[int(ranges.thread[row])].append(path)
        own = around.pop(int(calls.thread[call]), [])
        others = list(around.values())
        for path in own or (others[0] if len(others) == 1 else []):
            found[path].add(op)
    duration = (ops.end_ns - ops.start_ns).tolist()
    return {path: (len(rows), sum(duration[i] for i in rows)) for path, rows in found.items()}


@pytest.mark.parametrize("seed", range(8))
def test_nested_and_overlapping_ranges_agree_with_a_slow_reading(seed):
    made = seeded_trace(seed, 200)
    phases = tables(made).phases
    sums = zip(phases["num_kernels"].tolist(), phases["kernel_ns"].tolist(), strict=True)
    assert dict(zip(phases["path"], sums, strict=True)) == by_definition(made)

"""What the host did while the GPU waited, on traces small enough to add up by hand."""

import numpy as np
import pandas as pd
import pytest
from made import launches, trace

from analysis.readers.nsys.export import read_nsys_sqlite
from analysis.trace.attribution import attribute
from analysis.trace.flame import flame_table, range_stacks, stack_name
from analysis.trace.gaps import gaps_within
from analysis.trace.host_time import host_time
from analysis.trace.idle_host import host_share, idle_host, leading_windows
from analysis.trace.model import OpKind, RangeKind, Trace
from analysis.trace.ranges import phase_ranges
from analysis.trace.records import host_table
from analysis.trace.steps import find_steps, steps_document
from tests.analysis.readers.nsys_files import NSYS

OP = RangeKind.OPERATOR


def idle(given: Trace):
    found = idle_host(given, find_steps(given))
    assert found is not None
    return found


def by_row(given: Trace) -> dict[tuple[str, str, str | None], int]:
    return {
        (row.group, row.activity, row.call if isinstance(row.call, str) else None): row.idle_ns
        for row in idle(given).frame.itertuples()
    }


def test_a_gap_is_split_by_what_the_launching_thread_was_in() -> None:
    ranges = [("enumerate(DataLoader)#_Iter.__next__", 110, 400, 0), ("aten::mm", 400, 600, 0, OP)]
    calls = [*launches((0, 0)), ("cudaStreamSynchronize", 120, 200, 0), *launches((500, 0))]
    given = trace(ranges=ranges, calls=calls, ops=[(50, 100, 0), (520, 600, 2)])

    assert by_row(given) == {
        ("data_loader", "enumerate(DataLoader)#_Iter.__next__", "cudaStreamSynchronize"): 80,
        ("data_loader", "enumerate(DataLoader)#_Iter.__next__", None): 210,
        ("operator", "aten::mm", None): 100,
        ("launch", "aten::mm", "cudaLaunchKernel"): 2,
        ("latency", "launch latency", None): 18,
        ("outside", "host code outside CUDA calls", None): 10,
    }


def test_all_of_a_gap_is_accounted_for() -> None:
    calls = [*launches((0, 0), (10, 0)), ("cudaMalloc", 150, 300, 0), *launches((400, 0))]
    given = trace(calls=calls, ops=[(50, 100, 0), (120, 140, 1), (450, 500, 3)])

    found = idle(given)

    assert found.frame["idle_ns"].sum() == 20 + 310
    assert found.frame["idle_frac"].sum() == pytest.approx(330 / 450)
    assert by_row(given)["queued", "work queued behind other work", None] == 20
    assert by_row(given)["allocation", "cudaMalloc", "cudaMalloc"] == 150


def test_a_copy_in_a_gap_is_the_copys_time() -> None:
    calls = launches((0, 0), (110, 0), (210, 0))
    ops = [(50, 100, 0), (120, 200, 1, OpKind.MEMCPY), (220, 300, 2)]

    assert by_row(trace(calls=calls, ops=ops))["transfer", "copies on the GPU", None] == 80


def test_only_the_thread_that_launches_next_is_asked() -> None:
    ranges = [("busy elsewhere", 100, 500, 1), ("backward", 100, 500, 0)]
    given = trace(
        ranges=ranges, calls=launches((0, 0), (400, 0)), ops=[(50, 100, 0), (410, 420, 1)]
    )

    assert {name for _, name, _ in by_row(given)} == {"backward", "launch latency"}


def test_the_share_is_told_in_words_with_the_operator_that_waits() -> None:
    ranges = [("aten::item", 100, 900, 0, OP)]
    calls = [*launches((0, 0)), ("cudaStreamSynchronize", 100, 800, 0), *launches((900, 0))]
    found = idle(trace(ranges=ranges, calls=calls, ops=[(50, 100, 0), (950, 1_050, 2)]))

    words = host_share(found.frame)

    assert words[0] == ("`aten::item` copies and waits", pytest.approx(0.7))


def test_idle_time_after_the_last_kernel_of_the_last_step_is_the_hosts() -> None:
    ranges = [(f"iteration_{i}", 1_000 * i, 1_000 * i + 1_000, 0) for i in range(4)]
    ranges += [("collate", 1_000 * i + 300, 1_000 * i + 900, 0) for i in range(4)]
    calls = launches(*[(1_000 * i, 0) for i in range(4)])
    given = trace(
        ranges=ranges, calls=calls, ops=[(1_000 * i + 10, 1_000 * i + 210, i) for i in range(4)]
    )

    found = idle(given)
    steps = find_steps(given)
    device, windows, _ = leading_windows(given, steps)
    by_cause = gaps_within(given, host_time(given), device, windows)

    # Each step idles for 800 of 1000 ns; what follows the last kernel is known of the host alone.
    assert steps_document(steps)["idle_frac"] == pytest.approx(0.8)
    assert found.frame["idle_frac"].sum() == pytest.approx(0.8)
    assert by_row(given)["data_loader", "collate", None] == 4 * 600
    assert sum(by_cause.values()) == 4 * 800


def test_ranges_that_count_are_one_activity() -> None:
    ranges = [(f"ProfilerStep#{i}", 1_000 * i, 1_000 * i + 1_000, 0) for i in range(4)]
    calls = launches(*[(1_000 * i, 0) for i in range(4)])
    ops = [(1_000 * i + 10, 1_000 * i + 210, i) for i in range(4)]

    rows = by_row(trace(ranges=ranges, calls=calls, ops=ops))

    assert rows["range", "iteration_*", None] == 4 * 790


def test_a_kernel_that_starts_long_after_its_launch_waits_for_something_else() -> None:
    ms = 1_000_000
    calls = launches((0, 0), (200, 0))
    given = trace(calls=calls, ops=[(50, 100, 0), (300 * ms, 301 * ms, 1)])

    held = 300 * ms - calls[1][2]
    assert by_row(given)["queued", "work queued behind other work", None] == held
    whole = (np.array([50]), np.array([301 * ms]))
    by_cause = gaps_within(given, host_time(given), 0, whole)
    assert (by_cause["unknown"], by_cause["launch"]) == (held, calls[1][2] - 100)


def test_without_calls_nothing_is_claimed() -> None:
    given = trace(ops=[(0, 10, -1), (50, 60, -1)])

    assert idle_host(given, find_steps(given)) is None


def nodes(given: Trace) -> dict[tuple[str, ...], float]:
    """Return the tree's own times by path from the top."""
    steps = find_steps(given)
    table = flame_table(given, attribute(given, phase_ranges(given)), steps, None)
    rows = table.to_dict("records")
    paths: dict[int, tuple[str, ...]] = {}
    for row in rows:
        around = () if pd.isna(row["parent"]) else paths[row["parent"]]
        paths[row["node"]] = (*around, row["name"])
    return {paths[row["node"]]: row["self_ns"] for row in rows if row["self_ns"]}


def test_gpu_time_lies_under_the_stack_that_launched_it() -> None:
    ranges = [("layer_1", 0, 50, 0), ("aten::mm", 5, 20, 0, OP), ("layer_2", 60, 90, 0)]
    given = trace(
        ranges=ranges,
        calls=launches((10, 0), (30, 0), (70, 0)),
        ops=[(100, 140, 0), (140, 150, 1), (150, 155, 2)],
    )

    assert nodes(given) == {
        ("layer_*", "aten::mm", "gemm"): 40,
        ("layer_*", "gemm"): 10 + 5,
    }


def test_stacks_of_one_name_are_one_whatever_their_number() -> None:
    ranges = [("step_1", 0, 10, 0), ("mm", 2, 4, 0), ("step_2", 20, 30, 0), ("mm", 22, 24, 0)]

    stacks = range_stacks(trace(ranges=ranges))

    assert stacks.name == ("step_*", "mm")
    assert stacks.of_range.tolist() == [0, 1, 0, 1, -1]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ProfilerStep#12", "ProfilerStep#*"),
        ("iteration_3", "iteration_*"),
        ("/usr/lib/torch/nn/modules/linear.py(120): forward", "linear.py(120): forward"),
        ("nn.Module: Linear_0", "nn.Module: Linear_*"),
        ("aten::mm", "aten::mm"),
    ],
)
def test_names_in_stacks(name: str, shown: str) -> None:
    assert stack_name(name) == shown


def test_the_host_s_part_does_not_depend_on_how_many_gaps_are_looked_into_at_a_time(monkeypatch):
    path = NSYS / "train_bf16.sqlite"
    whole = read_nsys_sqlite(path).idle_host
    monkeypatch.setattr("analysis.trace.idle_host.PART_GAPS", 7)
    assert read_nsys_sqlite(path).idle_host.equals(whole)


def test_rows_of_host_threads_are_calls_and_operators_by_their_own_depth() -> None:
    ranges = [("step", 0, 90, 0), ("aten::linear", 5, 80, 0, OP), ("aten::mm", 10, 40, 0, OP)]
    given = trace(ranges=ranges, calls=launches((20, 0)), ops=[(50, 60, 0)])

    rows = host_table(given).to_pylist()

    assert [(r["name"], r["row"], r["kind"]) for r in rows] == [
        ("aten::linear", 1, "operator"),
        ("aten::mm", 2, "operator"),
        ("cudaLaunchKernel", 0, "API call"),
    ]


def test_a_launch_shortly_before_the_gap_is_the_hosts_until_its_kernel_can_start() -> None:
    calls = launches((0, 0), (200, 0), (290, 0), (293, 0))
    given = trace(calls=calls, ops=[(10, 100, 0), (220, 300, 1), (315, 400, 2), (430, 440, 3)])

    rows = by_row(given)

    # A kernel starts 20 after its launch on an idle GPU: the third could at 310.
    assert rows["latency", "launch latency", None] == 18 + 10
    assert rows["queued", "work queued behind other work", None] == 5 + 30

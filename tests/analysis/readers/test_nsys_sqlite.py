"""Every line of tests/data/README.md about nsys, and what the vendor's own reports say."""

import csv

import pytest

from analysis.readers.nsys.export import read_nsys_sqlite
from analysis.tables import (
    API_CALL_COLUMNS,
    GAP_COLUMNS,
    KERNEL_COLUMNS,
    MEMORY_POINT_COLUMNS,
    PHASE_COLUMNS,
    RANGE_COLUMNS,
    SPAN_COLUMNS,
    TRANSFER_COLUMNS,
)
from tests.analysis.readers.nsys_files import NSYS, rows


@pytest.mark.parametrize(
    ("name", "num_kernels", "kernel_time_ns"),
    [
        ("decode_eager", 380, 2_184_310),
        ("decode_max_autotune", 100, 1_616_232),
        ("decode_reduce_overhead", 195, 1_853_422),
        ("forward_fp32", 832, 32_842_954),
        ("train_bf16", 3162, 22_215_706),
        ("decode_cuda_graph_node", 380, 2_198_239),
        ("streams_and_copies", 33, 4_560_899),
    ],
)
def test_kernel_sums_are_those_of_the_readme(name, num_kernels, kernel_time_ns):
    tables = read_nsys_sqlite(NSYS / f"{name}.sqlite")
    assert tables.summary["num_kernels"] == num_kernels
    assert tables.summary["kernel_time_ns"] == kernel_time_ns
    assert tables.kernels["total_ns"].sum() == kernel_time_ns
    assert tables.kernels["count"].sum() == num_kernels


def test_busy_and_span_of_the_eager_decode():
    summary = read_nsys_sqlite(NSYS / "decode_eager.sqlite").summary
    assert (summary["busy_ns"], summary["span_ns"]) == (2_179_670, 12_578_217)
    assert summary["idle_frac"] == pytest.approx(0.8267107, abs=1e-7)


def test_kernels_of_one_name_add_up_to_the_vendor_report():
    ours = read_nsys_sqlite(NSYS / "decode_eager.sqlite").kernels.groupby("name")
    ours = ours.agg({"count": "sum", "total_ns": "sum", "min_ns": "min", "max_ns": "max"})
    with (NSYS / "decode_eager.cuda_gpu_kern_sum.csv").open() as stream:
        vendor = {r["Name"]: r for r in csv.DictReader(stream)}
    expected = {
        n: [int(r[c]) for c in ("Instances", "Total Time (ns)", "Min (ns)", "Max (ns)")]
        for n, r in vendor.items()
    }
    assert {n: list(r) for n, r in zip(ours.index, ours.to_numpy(), strict=True)} == expected


def test_api_calls_are_those_of_the_vendor_report():
    ours = read_nsys_sqlite(NSYS / "decode_eager.sqlite").api_calls
    with (NSYS / "decode_eager.cuda_api_sum.csv").open() as stream:
        vendor = {
            r["Name"].split("_v")[0]: (int(r["Num Calls"]), int(r["Total Time (ns)"]))
            for r in csv.DictReader(stream)
        }
    found = dict(zip(ours["name"], zip(ours["count"], ours["total_ns"], strict=True), strict=True))
    assert found == vendor


def test_gemm_names_of_the_eager_decode():
    kernels = read_nsys_sqlite(NSYS / "decode_eager.sqlite").kernels
    is_gemm = kernels["name"].str.contains("nvjet_|splitKreduce")
    assert kernels.loc[is_gemm, "total_ns"].sum() == 1_663_084


def test_graph_of_nodes_keeps_its_kernels_under_one_launch():
    tables = read_nsys_sqlite(NSYS / "decode_cuda_graph_node.sqlite")
    assert tables.summary["span_ns"] == 3_034_719
    assert tables.summary["num_graph_launches"] == 5
    assert tables.summary["opaque_graph_ns"] == 0
    forward = tables.phases[tables.phases["path"].str.endswith("/forward")]
    assert forward["num_kernels"].tolist() == [76] * 5


def test_whole_graphs_are_opaque_and_stay_in_the_denominator():
    tables = read_nsys_sqlite(NSYS / "decode_cuda_graph_whole.sqlite")
    assert tables.summary["opaque_graph_ns"] == 2_330_627
    assert tables.summary["num_graph_launches"] == 5
    assert "num_kernels" not in tables.summary and "kernel_time_ns" not in tables.summary
    assert tables.kernels[["is_opaque", "count", "total_ns"]].to_numpy().tolist() == [
        [True, 5, 2_330_627]
    ]
    assert tables.phases["kernel_ns"].isna().all()
    warning = next(w for w in tables.warnings if w.code == "opaque_graphs")
    assert "100 %" in warning.message and "--cuda-graph-trace=node" in warning.message


def test_reduce_overhead_without_a_graph_launch_is_visible():
    summary = read_nsys_sqlite(NSYS / "decode_reduce_overhead.sqlite").summary
    assert summary["num_graph_launches"] == 0


def test_transfers_allocations_and_ranges_of_two_streams():
    tables = read_nsys_sqlite(NSYS / "streams_and_copies.sqlite")
    by_kind = tables.transfers.groupby("kind")[["count", "bytes", "total_ns"]].sum()
    assert by_kind.loc["HtoD"].tolist() == [21, 1_614_839_808, 111_280_209]
    assert by_kind.loc["DtoH"].tolist() == [3, 805_306_368, 14_596_074]
    assert by_kind.loc["DtoD"].tolist() == [3, 805_306_368, 604_384]
    phases = tables.phases.set_index("path")
    assert phases.loc["BENCHMARK", ["num_kernels", "kernel_ns"]].tolist() == [24, 4_005_059]
    assert not any("never_closed" in path for path in phases.index)
    assert any(w.code == "unclosed_ranges" and "1 " in w.message for w in tables.warnings)
    assert tables.memory["num_events"] == 128


def test_memory_curve_is_the_running_sum_of_allocations():
    tables = read_nsys_sqlite(NSYS / "streams_and_copies.sqlite")
    level, levels = 0, []
    for size, operation in rows(
        NSYS / "streams_and_copies.sqlite",
        "SELECT bytes, memoryOperationType FROM CUDA_GPU_MEMORY_USAGE_EVENTS "
        "WHERE memKind = 2 ORDER BY start",
    ):
        level += size if operation == 0 else -size
        levels.append(level)
    assert tables.memory_points["allocated_bytes"].tolist() == levels
    assert tables.summary["peak_memory_bytes"] == max(levels)


def test_no_gpu_activity_is_a_state_without_numbers():
    tables = read_nsys_sqlite(NSYS / "no_gpu_work.sqlite")
    assert dict(tables.summary) == {}
    assert tables.kernels is None and tables.spans is None
    codes = [w.code for w in tables.warnings]
    assert "no_gpu_activity" in codes
    assert any("No CUDA events collected" in w.message for w in tables.warnings)


def test_facts_name_the_gpu_versions_and_options():
    tables = read_nsys_sqlite(NSYS / "decode_cuda_graph_node.sqlite")
    assert tables.gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert (tables.gpu["num_sms"], tables.gpu["compute_capability"]) == (132, "9.0")
    assert tables.environment["driver"] == "580.159.04"
    assert tables.environment["nsys_cuda_graph_trace"] == "Node"
    assert tables.tool_version == "2025.3.2.0"


@pytest.mark.parametrize("path", sorted(NSYS.glob("*.sqlite")), ids=lambda p: p.stem)
def test_gaps_sum_to_span_minus_busy(path):
    tables = read_nsys_sqlite(path)
    idle = tables.summary.get("span_ns", 0) - tables.summary.get("busy_ns", 0)
    assert tables.gaps["total_ns"].sum() == idle
    assert (tables.gaps["total_ns"] >= 0).all()


def test_frames_have_exactly_the_contract_columns():
    tables = read_nsys_sqlite(NSYS / "streams_and_copies.sqlite")
    assert tuple(tables.kernels.columns) == KERNEL_COLUMNS
    assert tuple(tables.phases.columns) == PHASE_COLUMNS
    assert tuple(tables.api_calls.columns) == API_CALL_COLUMNS
    assert tuple(tables.transfers.columns) == TRANSFER_COLUMNS
    assert tuple(tables.gaps.columns) == GAP_COLUMNS
    assert tuple(tables.memory_points.columns) == MEMORY_POINT_COLUMNS
    assert tuple(tables.spans.column_names) == SPAN_COLUMNS
    assert tuple(tables.ranges.column_names) == RANGE_COLUMNS


def test_spans_hold_every_operation_in_order_with_its_launch():
    spans = read_nsys_sqlite(NSYS / "train_bf16.sqlite").spans.to_pandas()
    counts = spans["kind"].astype(str).value_counts().to_dict()
    assert counts == {"kernel": 3162, "memcpy": 98, "memset": 74}
    assert spans["start_ns"].is_monotonic_increasing
    assert (spans["launch_start_ns"] <= spans["start_ns"]).all()
    backward = spans["path"].str.endswith("/backward") & (spans["kind"] == "kernel")
    assert backward.sum() == 1872

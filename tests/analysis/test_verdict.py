"""What limits the stored H100 runs, and what is said where a capture cannot tell."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.classify import classify
from analysis.idle import median_gap_ns
from analysis.readers.ncu.csv import read_ncu_csv
from analysis.readers.torch_trace.read import read_torch_trace
from analysis.tables import CaptureWarning
from analysis.verdict import VerdictKind, graphs_not_used, run_verdict
from analysis.verdict.facts import percent
from analysis.verdict.limits import slow_products
from tests.analysis.run_views import COUNTERS, NSYS, empty_view, nsys_view

H100 = "NVIDIA H100 80GB HBM3"


def test_eager_decode_is_launch_bound_with_its_numbers():
    found = run_verdict(nsys_view("decode_eager", compile="none"))
    assert found.kind == VerdictKind.LAUNCH_BOUND
    assert found.headline == (
        "Launch-bound: the GPU idles 83 % of 12.6 ms under the profiler, 76 launches an iteration"
    )
    assert found.next_steps


@pytest.mark.parametrize("overlap", [1, 2])
def test_the_bar_sums_to_the_time_that_passed(overlap):
    view = nsys_view("decode_eager")
    busy_ns = view.summary["busy_ns"] // overlap
    view = replace(view, summary={**view.summary, "busy_ns": busy_ns})
    bar = dict(run_verdict(view).bar)
    idle_ns = sum(ns for label, ns in bar.items() if label.startswith("idle"))
    assert idle_ns == nsys_view("decode_eager").gaps["total_ns"].sum()
    assert sum(bar.values()) - idle_ns == pytest.approx(busy_ns, abs=len(bar))
    shares = 1663084 / view.summary["kernel_time_ns"]
    assert bar["gemm"] / (sum(bar.values()) - idle_ns) == pytest.approx(shares, rel=1e-4)


def test_reduce_overhead_without_graphs_is_said():
    found = run_verdict(nsys_view("decode_reduce_overhead", compile="reduce-overhead"))
    assert found.kind == VerdictKind.LAUNCH_BOUND
    assert found.evidence[0].startswith("CUDA graphs were asked for and not used")
    assert "mutated in place" in found.next_steps[0]


@pytest.mark.parametrize(
    ("capture", "mode"),
    [
        ("decode_eager", "none"),
        ("decode_cuda_graph_node", "reduce-overhead"),
        ("decode_cuda_graph_whole", "reduce-overhead"),
        ("no_gpu_work", "reduce-overhead"),
    ],
)
def test_graphs_that_were_used_not_asked_for_or_not_seen_are_no_complaint(capture, mode):
    assert graphs_not_used(nsys_view(capture, compile=mode)) is None


def test_the_programs_own_report_of_skipped_graphs_counts():
    warning = CaptureWarning(code="cuda_graphs_skipped", message="mutated inputs")
    view = empty_view(warnings=(warning,))
    asked = replace(view, run=replace(view.run, params={"compile": "reduce-overhead"}))
    assert graphs_not_used(view) is None
    assert "not used" in graphs_not_used(asked)


def test_whole_graphs_are_opaque_and_the_remedy_is_named():
    found = run_verdict(nsys_view("decode_cuda_graph_whole"))
    assert found.kind == VerdictKind.OPAQUE
    assert "100 %" in found.headline and "5 whole CUDA graph launches" in found.headline
    assert "--cuda-graph-trace=node" in found.next_steps[0]


UNALIGNED = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>"
ALIGNED = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_tn_align8>"
TF32 = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>"
FP32 = (
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1::Params)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_"
    "alignc4_execute_kernel__5x_cublas",
)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        # Two shapes of one name: both count.
        ([(UNALIGNED, 10), (UNALIGNED, 15), (ALIGNED, 75)], ["25 % of the kernel time is in matrix "
         "products with unaligned operands (align1 to align4)"]),
        ([(FP32[0], 20), (FP32[1], 20), (TF32, 60)], ["40 % of the kernel time is in fp32 matrix "
         "products without tensor cores (sgemm, ffma)"]),
        ([(UNALIGNED, 4), (ALIGNED, 96)], []),
        ([(ALIGNED, 50), (TF32, 50)], []),
        ([], []),
    ],
)  # fmt: skip
def test_slow_products_are_told_by_their_kernels_names(named, said):
    columns = ["name", "category", "total_ns"]
    kernels = pd.DataFrame([(n, classify(n).category, ns) for n, ns in named], columns=columns)
    assert [remark.found for remark in slow_products(kernels)] == said


def test_a_busy_gpu_whose_products_are_fp32_is_told_to_use_tensor_cores():
    found = run_verdict(nsys_view("forward_fp32"))
    assert any("without tensor cores" in text for text in found.evidence)
    assert "Allow tensor cores" in found.next_steps[0]


def test_a_busy_gpu_without_counters_or_cost_model_cannot_be_told():
    found = run_verdict(nsys_view("forward_fp32"))
    assert found.kind == VerdictKind.UNKNOWN
    assert "cannot tell" in found.headline and "82 %" in found.headline
    assert any("ncu" in step for step in found.next_steps)


def a_rank(rank):
    times = dict.fromkeys(("idle_ns", "communication_ns", "exposed_ns", "late_ns"), 0)
    return {"rank": rank, "span_ns": 1, **times}


@pytest.mark.parametrize(
    ("ranks", "step"),
    [
        ({}, "Import the captures of all ranks"),
        ({"ranks": [a_rank(0)], "missing": [1]}, "Import the captures of all ranks"),
        ({"ranks": [a_rank(0), a_rank(1)], "missing": []}, "See on the Ranks tab"),
    ],
)
def test_what_to_do_about_collectives_depends_on_which_ranks_are_here(ranks, step):
    view = nsys_view("forward_fp32")
    collectives = view.kernels.assign(category="collective")
    found = run_verdict(replace(view, kernels=collectives, ranks=ranks))
    assert "collectives" in found.headline
    assert found.next_steps[0].startswith(step)
    assert ("one capture cannot tell" in found.headline) == (step[0] == "I")


def test_no_gpu_work_is_a_state_and_not_zero():
    found = run_verdict(nsys_view("no_gpu_work"))
    assert (found.kind, found.bar) == (VerdictKind.UNKNOWN, ())
    assert found.headline == "No GPU activity recorded"


def test_an_idle_gpu_without_a_known_cause_cannot_be_told():
    view = nsys_view("decode_eager")
    found = run_verdict(replace(view, gaps=view.gaps.iloc[:0]))
    assert found.kind == VerdictKind.UNKNOWN
    assert "83 %" in found.headline and "does not say why" in found.headline
    assert ("idle", view.summary["span_ns"] - view.summary["busy_ns"]) in found.bar


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("transfer", VerdictKind.TRANSFER_BOUND),
        ("synchronisation", VerdictKind.SYNC_BOUND),
        ("host", VerdictKind.HOST_BOUND),
    ],
)
def test_the_largest_known_cause_of_idling_names_the_limit(cause, kind):
    view = nsys_view("decode_eager")
    gaps = pd.DataFrame(
        [(cause, 3, 9_000_000, ""), ("launch", 9, 1_000_000, ""), ("unknown", 9, 9_500_000, "")],
        columns=["cause", "count", "total_ns", "evidence"],
    )
    assert run_verdict(replace(view, gaps=gaps)).kind == kind


def counters(memory_pct: float, sm_pct: float) -> pd.DataFrame:
    row = {
        **dict.fromkeys(COUNTERS), "short_name": "triu_tril_kernel", "duration_ns": 1e5,
        "memory_pct": memory_pct, "dram_pct": float("nan"), "sm_pct": sm_pct,
    }  # fmt: skip
    return pd.DataFrame([row])


@pytest.mark.parametrize(
    ("memory_pct", "sm_pct", "kind"),
    [
        (85.0, 30.0, VerdictKind.MEMORY_BOUND),
        (30.0, 85.0, VerdictKind.COMPUTE_BOUND),
        (30.0, 20.0, VerdictKind.UNKNOWN),
        (float("nan"), 90.0, VerdictKind.UNKNOWN),
    ],
)
def test_counters_decide_for_a_busy_gpu_and_say_their_coverage(memory_pct, sm_pct, kind):
    view = replace(nsys_view("forward_fp32"), counters=counters(memory_pct, sm_pct))
    assert run_verdict(view).kind == kind


@pytest.mark.parametrize(
    ("levels", "sm_pct", "words"),
    [
        ({"dram_pct": 3.0, "l2_pct": 34.0}, 69.0, "Compute-bound: the SMs at 69 %"),
        ({"dram_pct": 3.0, "l2_pct": 34.0}, 40.0, "on the chip: L1 or shared memory at 75 %"),
        ({"dram_pct": 70.0, "l2_pct": 72.0}, 69.0, "Memory-bound: memory at 72 %"),
        ({"dram_pct": 70.0}, 69.0, "Memory-bound: memory at 70 %"),
    ],
)
def test_memory_of_the_chip_does_not_pass_for_dram(levels, sm_pct, words):
    of_fp32_products = counters(75.0, sm_pct).assign(**levels)
    found = run_verdict(replace(nsys_view("forward_fp32"), counters=of_fp32_products))
    assert words in found.headline
    assert "(DRAM " in found.evidence[0]


def test_counters_say_what_share_of_the_time_they_cover():
    view = replace(nsys_view("forward_fp32"), counters=counters(85.0, 30.0))
    assert "kernels of these names are 0.2 % of the GPU time" in run_verdict(view).evidence


@pytest.mark.parametrize(
    ("cost", "kind"),
    [
        ({"flops": 1e9, "bytes": 2.5e9, "flops_dtype": "bf16"}, VerdictKind.MEMORY_BOUND),
        ({"flops": 0.7e12, "bytes": 1e8, "flops_dtype": "bf16"}, VerdictKind.COMPUTE_BOUND),
        ({"flops": 1e9, "bytes": 1e8, "flops_dtype": "bf16"}, VerdictKind.UNKNOWN),
        ({"flops": 1e9, "bytes": 9e9, "flops_dtype": "bf16"}, VerdictKind.UNKNOWN),
    ],
)
def test_without_counters_the_cost_model_decides(cost, kind):
    view = nsys_view("forward_fp32")
    summary = {**view.summary, "latency_ms": {"median": 1.0}}
    assert run_verdict(replace(view, cost=cost, summary=summary)).kind == kind


def test_out_of_memory_is_a_result_with_its_bytes():
    view = empty_view()
    run = replace(view.run, status="oom", oom={"phase": "backward", "requested_bytes": 2**30})
    found = run_verdict(replace(view, run=run))
    assert found.kind == VerdictKind.OOM
    assert "in backward" in found.headline and found.evidence == ("asked for 1.07 GB",)


@pytest.mark.parametrize("second", ["aten::add", "## Call CompiledFxGraph f7 ##", "mine::op"])
def test_a_trace_without_gpu_work_is_a_cpu_run_whatever_its_operators_are_called(
    tmp_path: Path, second: str
) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        for name, ts, dur in (("aten::mm", 0, 300), (second, 400, 100))
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    tables = read_torch_trace(path)
    classes = [classify(name) for name in tables.kernels["name"]]
    kernels = tables.kernels.assign(category=[str(c.category) for c in classes])
    view = empty_view(warnings=tables.warnings)
    found = run_verdict(replace(view, kernels=kernels, primary_pass="trace"))
    assert found.kind == VerdictKind.CPU
    assert "aten::mm 75 %" in found.evidence[0]


def test_a_cpu_run_is_told_of_no_tool_that_needs_a_gpu():
    view = empty_view()
    view = replace(view, run=replace(view.run, gpu_model="cpu"))
    assert run_verdict(view).next_steps == ("Run again with the trace profiler",)
    without = run_verdict(replace(view, primary_pass="trace"))
    assert without.headline == "No operators recorded" and "GPU" not in without.next_steps[0]


def test_out_of_memory_points_at_the_memory_tab_only_where_it_has_something():
    view = empty_view()
    view = replace(view, run=replace(view.run, status="oom", oom={}))
    assert not any("Memory tab" in step for step in run_verdict(view).next_steps)
    site = view.memory_at_peak.reindex([0])
    assert "Memory tab" in run_verdict(replace(view, memory_at_peak=site)).next_steps[0]


def test_median_gap_ignores_overlap_and_other_devices(tmp_path):
    rows = pd.DataFrame(
        {"start_ns": [0, 5, 20, 50, 7], "end_ns": [10, 8, 30, 60, 9], "device": [0, 0, 0, 0, 1]}
    )
    rows.to_parquet(tmp_path / "s.parquet")
    assert median_gap_ns((tmp_path / "s.parquet",)) == 15
    assert median_gap_ns((tmp_path / "absent.parquet",)) is None


def test_an_ncu_report_alone_tells_the_compiled_decode_is_memory_bound():
    read = read_ncu_csv(NSYS.parent / "ncu" / "decode_max_autotune.raw.csv")
    found = run_verdict(empty_view(counters=read.counters))
    assert found.kind == VerdictKind.MEMORY_BOUND
    assert found.evidence[0].startswith("counters of 10 launches")


def trace_view(tmp_path: Path, *events: dict):
    """Return the view of a trace with these events, classes included."""
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps({"traceEvents": [{"ph": "X", "pid": 0, "tid": 7} | e for e in events]})
    )
    read = read_torch_trace(path)
    kernels = read.kernels
    if kernels is not None:
        for field in ("category", "origin"):
            kernels[field] = [getattr(classify(n), field) for n in kernels["name"]]
    frames = {n: getattr(read, n) for n in ("kernels", "transfers", "api_calls", "gaps")}
    known = {n: frame for n, frame in frames.items() if frame is not None}
    return empty_view(
        summary=dict(read.summary), primary_pass="trace", warnings=read.warnings, **known
    )


def _event(cat: str, name: str, ts: int, dur: int) -> dict:
    args = {"device": 0, "stream": 7, "correlation": ts}
    return {"cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


@pytest.mark.parametrize(
    ("events", "kind", "says"),
    [
        ([("cpu_op", "aten::add", 1, 0)], "cpu", "all recorded operators have a duration of 0"),
        ([("kernel", "k", 1, 0)], "unknown", "all recorded kernels have a duration of 0"),
        ([("kernel", "zz", 1, 5)], "unknown", "in kernels that no rule knows"),
        ([("kernel", "k", 9, -5)], "unknown", "no recorded kernel has a time that can be"),
        ([("gpu_memcpy", "Memcpy HtoD", 1, 5)], "unknown", "only copies and memory sets: 0.005 ms"),
        ([("kernel", "ncclDevKernel_AllReduce_Sum", 1, 5)], "unknown", "wait for other ranks"),
    ],
)
def test_odd_runs_have_a_headline_that_makes_sense(tmp_path, events, kind, says):
    found = run_verdict(trace_view(tmp_path, *(_event(*e) for e in events)))
    assert found.kind == kind and says in found.headline
    assert found.next_steps


def test_graphs_without_any_record_are_no_missing_gpu():
    found = run_verdict(empty_view(primary_pass="nsys", summary={"num_graph_launches": 5}))
    assert found.headline.startswith("5 CUDA graph launches left no GPU record")
    assert "--cuda-graph-trace=node" in found.next_steps[0]


def test_a_summary_without_kernels_does_not_say_that_there_were_none():
    captures = pd.DataFrame({"kind": ["nsys_csv"]})
    found = run_verdict(empty_view(primary_pass="nsys", captures=captures))
    assert "lists no kernels" in found.headline


def test_mostly_unexplained_idling_names_no_limit():
    view = nsys_view("decode_eager")
    rows = [("unknown", 3, 9_000_000, ""), ("launch", 9, 1_000_000, "")]
    gaps = pd.DataFrame(rows, columns=["cause", "count", "total_ns", "evidence"])
    found = run_verdict(replace(view, gaps=gaps))
    assert found.kind == VerdictKind.UNKNOWN and "does not say why" in found.headline
    assert "nsys profile" not in found.next_steps[0]  # the calls are recorded


def test_a_kernel_summary_alone_does_not_make_the_gpu_busy():
    view = nsys_view("decode_eager")
    found = run_verdict(replace(view, summary={"num_kernels": 380}, gaps=view.gaps.iloc[:0]))
    assert found.headline.startswith("76 % of the kernel time is in gemm")


@pytest.mark.parametrize(
    ("frac", "text"),
    [
        (0, "0 %"),
        (1e-5, "< 0.1 %"),
        (0.5, "50 %"),
        (0.995, "99.5 %"),
        (0.99999, "> 99.9 %"),
        (1, "100 %"),
    ],
)
def test_a_share_next_to_all_or_nothing_does_not_read_as_such(frac, text):
    assert percent(frac) == text


@pytest.mark.parametrize(
    ("gemm_frac", "words"),
    [(0.3, "70 % of it outside matrix products; MFU is only"), (0.8, "80 % of it in matrix")],
)
def test_far_from_both_peaks_the_verdict_says_where_the_time_goes(gemm_frac, words):
    view = nsys_view("forward_fp32")
    summary = {**view.summary, "latency_ms": {"median": 1000.0}, "gemm_frac": gemm_frac}
    cost = {"flops": 1e12, "bytes": 1e6, "flops_dtype": "fp32"}
    found = run_verdict(replace(view, summary=summary, cost=cost))
    assert words in found.headline
    assert any("torch.compile" in step for step in found.next_steps) == (gemm_frac < 0.5)


def test_launches_of_graphs_are_not_told_to_use_graphs():
    view = nsys_view("decode_eager")
    assert "CUDA graphs (compile" in run_verdict(view).next_steps[0]
    replayed = replace(view, summary={**view.summary, "num_graph_launches": 5})
    assert "launched already" in run_verdict(replayed).next_steps[0]


def waiting_view(**shares):
    """Return a launch-bound run whose host spent its idle time so, in percent by group."""
    view = nsys_view("decode_eager")
    rows = [(group, "x", None, 10 * n, n, n / 100) for group, n in shares.items()]
    columns = ["group", "activity", "call", "idle_ns", "step_idle_ns", "idle_frac"]
    return replace(
        view, by_step=replace(view.by_step, idle_host=pd.DataFrame(rows, columns=columns))
    )


def test_idle_time_that_is_mostly_the_data_loaders_is_not_the_launches():
    found = run_verdict(waiting_view(data_loader=50, launch=20, python=10))
    assert found.kind == VerdictKind.HOST_BOUND
    assert found.headline.endswith(", most of it in the data loader")
    assert "loader workers" in found.next_steps[0]


def test_a_host_activity_of_less_than_half_the_idle_time_is_no_headline():
    found = run_verdict(waiting_view(data_loader=40, launch=20, python=30))
    assert found.kind == VerdictKind.LAUNCH_BOUND
    assert "data loader" not in found.headline

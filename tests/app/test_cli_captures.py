"""`import` and `show --json` give each real capture's figures of tests/data/README.md, exactly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from core.config import DataDir
from tests.analysis.made_rank_traces import write_trace
from tests.conftest import H100

Show = Callable[..., dict[str, Any]]


@pytest.fixture
def show(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> Show:
    """Import files and return the document of `show --json`."""

    def imported(*names: str) -> dict[str, Any]:
        paths = [str(H100 / name) for name in names]
        assert main(["--data", str(data_dir.root), "import", *paths, "--json"]) == 0
        run_id = json.loads(capsys.readouterr().out)["run_id"]
        assert main(["show", run_id, "--json", "--data", str(data_dir.root)]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return imported


def last_range(document: dict[str, Any], name: str) -> tuple[int, int]:
    """Return (kernel_ns, num_kernels) summed over the paths that end with this range."""
    rows = [p for p in document["phases"] if p["path"].split("/")[-1] == name]
    return sum(p["kernel_ns"] for p in rows), sum(p["num_kernels"] for p in rows)


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        ("decode_eager", {"num_kernels": 380, "kernel_time_ns": 2_184_310, "busy_ns": 2_179_670}),
        ("decode_eager", {"span_ns": 12_578_217, "num_graph_launches": 0}),
        ("decode_max_autotune", {"num_kernels": 100, "kernel_time_ns": 1_616_232}),
        ("decode_reduce_overhead", {"num_kernels": 195, "kernel_time_ns": 1_853_422}),
        ("decode_reduce_overhead", {"num_graph_launches": 0}),
        ("forward_fp32", {"num_kernels": 832, "kernel_time_ns": 32_842_954}),
        ("train_bf16", {"num_kernels": 3162, "kernel_time_ns": 22_215_706}),
        ("decode_cuda_graph_node", {"num_kernels": 380, "kernel_time_ns": 2_198_239}),
        ("decode_cuda_graph_node", {"span_ns": 3_034_719}),
        ("decode_cuda_graph_whole", {"num_graph_launches": 5, "opaque_graph_ns": 2_330_627}),
        ("streams_and_copies", {"num_kernels": 33, "kernel_time_ns": 4_560_899}),
    ],
)
def test_summary_of_each_nsys_capture(show: Show, name: str, summary: dict[str, int]) -> None:
    found = show(f"nsys/{name}.sqlite")["summary"]

    assert {key: found[key] for key in summary} == summary


@pytest.mark.parametrize(
    ("name", "gemm_ns", "total_ns"),
    [("decode_eager", 1_663_084, 2_184_310), ("forward_fp32", 26_854_460, 32_842_954)],
)
def test_gemm_fraction(show: Show, name: str, gemm_ns: int, total_ns: int) -> None:
    found = show(f"nsys/{name}.sqlite")["summary"]

    assert found["gemm_frac"] == pytest.approx(gemm_ns / total_ns, rel=1e-9)
    assert found["unclassified_frac"] == 0


@pytest.mark.parametrize(
    ("capture", "phases"),
    [
        ("decode_eager", {"attention": (942_715, 220), "mlp": (1_241_595, 160)}),
        (
            "forward_fp32",
            {
                "softmax": (956_310, 24),
                "attention_scores": (2_654_236, 96),
                "attention_output": (1_268_318, 48),
            },
        ),
        (
            "train_bf16",
            {
                "forward": (5_288_319, 1178),
                "backward": (9_272_899, 1872),
                "optimizer": (7_654_488, 112),
            },
        ),
        ("streams_and_copies", {"BENCHMARK": (4_005_059, 24)}),
    ],
)
def test_phase_sums(show: Show, capture: str, phases: dict[str, tuple[int, int]]) -> None:
    document = show(f"nsys/{capture}.sqlite")

    assert {name: last_range(document, name) for name in phases} == phases


def test_backward_says_how_its_kernels_were_found(show: Show) -> None:
    rows = show("nsys/train_bf16.sqlite")["phases"]

    said = {p["attribution"] for p in rows if p["path"].endswith("/backward")}
    assert said == {"process_time"}


def test_each_iteration_has_its_kernels(show: Show) -> None:
    rows = show("nsys/decode_eager.sqlite")["phases"]

    found = [p["num_kernels"] for p in rows if p["path"].split("/")[-1].startswith("iteration_")]
    assert found == [76] * 5


def test_transfers_by_kind(show: Show) -> None:
    rows = show("nsys/streams_and_copies.sqlite")["transfers"]

    found = {
        kind: tuple(sum(r[key] for r in rows if r["kind"] == kind) for key in keys)
        for keys in [("count", "bytes", "total_ns")]
        for kind in ("HtoD", "DtoH", "DtoD")
    }
    assert found == {
        "HtoD": (21, 1_614_839_808, 111_280_209),
        "DtoH": (3, 805_306_368, 14_596_074),
        "DtoD": (3, 805_306_368, 604_384),
    }


def test_program_without_gpu_work_has_no_numbers(show: Show) -> None:
    document = show("nsys/no_gpu_work.sqlite")

    assert document["summary"] == {}
    assert document["kernels"] == []
    assert "no_gpu_activity" in {w["code"] for w in document["warnings"]}


def test_memory_snapshot(show: Show) -> None:
    document = show("memory/train_fp32.pickle")

    assert document["memory"]["baseline_bytes"] == 1_610_621_952
    assert document["memory"]["peak_bytes"] == 2_876_290_056
    summary = document["summary"]
    assert summary["requested_bytes"] == 2_876_290_056
    assert summary["peak_memory_bytes"] == summary["allocated_bytes"] == 2_909_026_304
    assert summary["reserved_bytes"] == 3_122_659_328
    points = document["memory"]["points"]
    assert max(p["requested_bytes"] for p in points) == summary["requested_bytes"]
    assert max(p["allocated_bytes"] for p in points) == summary["allocated_bytes"]


def test_snapshot_of_a_run_out_of_memory_is_an_oom_run(show: Show) -> None:
    document = show("memory/train_oom.pickle")

    assert document["run"]["status"] == "oom"
    assert document["run"]["oom"]["requested_bytes"] == 81_920_000
    assert document["memory"]["peak_bytes"] == 3_977_339_904


def test_counters_of_an_ncu_page(show: Show) -> None:
    document = show("ncu/decode_eager.raw.csv")

    assert len(document["counters"]) == 38
    first = document["counters"][0]
    assert {"name", "duration_ns", "sm_pct", "dram_pct", "grid", "block"} <= set(first)


def test_stored_copy_says_what_was_removed(show: Show) -> None:
    captures = show("nsys/decode_eager.sqlite")["captures"]

    assert captures[0]["private_removed"]
    assert {"kind", "tool", "tool_version", "bytes", "sha256"} <= set(captures[0])


def test_latency_table_makes_a_run_with_samples(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("iteration,latency_ms\n0,1.5\n1,2.5\n2,2.0\n")

    found = show(str(table))["summary"]["latency_ms"]

    assert (found["median"], found["n"], found["min"]) == (2.0, 3, 1.5)


def test_show_gives_the_steps_and_what_one_is_made_of(show: Show) -> None:
    steps = show("nsys/decode_eager.sqlite")["steps"]

    assert (steps["source"], steps["count"], steps["confidence"]) == ("ranges", 5, 1.0)
    assert (steps["num_kernels"], steps["block"]) == (76, {"num_kernels": 38, "count": 2})
    assert steps["kernel_ns"] == 437_100
    assert steps["gemm_frac"] == pytest.approx(1_663_084 / 2_184_310, abs=0.02)
    attention = next(p for p in steps["phases"] if p["path"].endswith("/attention"))
    assert attention["kernel_ns"] == pytest.approx(942_715 / 5)


def test_show_says_why_there_are_no_steps(show: Show) -> None:
    document = show("nsys/no_gpu_work.sqlite")

    assert document["steps"] is None
    assert document["steps_reason"] == "no GPU work was recorded"


def test_show_tells_what_the_host_did_while_the_gpu_waited(show: Show) -> None:
    document = show("nsys/decode_eager.sqlite")

    shares = sum(row["idle_frac"] for row in document["idle_host"])
    assert shares == pytest.approx(document["steps"]["idle_frac"], abs=0.02)
    assert document["idle_host"][0]["activity"] == "attention"


def test_phases_of_several_ranks_are_told_apart(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    traces = [write_trace(tmp_path / f"rank{r}.json.gz", r) for r in range(2)]
    assert main(["--data", str(data_dir.root), "import", *map(str, traces), "--name", "two"]) == 0
    capsys.readouterr()

    assert main(["--data", str(data_dir.root), "show", "two"]) == 0

    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["process", "phase"])
    assert {line.split()[0] for line in lines[head + 1 :] if line.strip()} == {"0", "1"}

"""Every workload runs alone on a CPU at its smallest and leaves what the protocol promises."""

import functools
import gzip
import json

import pytest

from tests.workloads.program import COMPILE_LITTLE, run_program

SMALLEST = {
    "attention": {"mode": "forward_backward"},
    "decode": {"vocab": 64},
    "gemm": {},
    "generate": {},
    "moe_routing": {"implementation": "route_sort"},
    "prefill": {},
    "transformer": {"mode": "train_step", "dtype": "bf16"},
}
PHASES = {
    "attention": {"forward", "backward"},
    "decode": {"forward"},
    "gemm": {"gemm"},
    "generate": {"prefill", "decode"},
    "moe_routing": {"route", "regroup"},
    "prefill": {"forward"},
    "transformer": {"forward", "backward", "optimizer"},
}


@pytest.fixture
def run(warm_python):
    """Run a workload as a worker does."""
    return functools.partial(run_program, warm_python)


@pytest.mark.parametrize("name", tuple(SMALLEST))
def test_clean_pass_gives_samples_phases_cost_and_environment(name, run, tmp_path):
    done = run(name, spec={"preset": "tiny", **SMALLEST[name]}, out=tmp_path)

    result = done.result
    assert done.returncode == 0, done.stderr
    assert result["status"] == "ok" and result["pass"] == "clean"
    assert len(result["samples_ns"]) >= 10 and min(result["samples_ns"]) > 0
    assert set(result["phase_samples_ns"]) == PHASES[name]
    assert {len(s) for s in result["phase_samples_ns"].values()} == {len(result["samples_ns"])}
    assert result["cost"]["flops"] > 0
    assert result["environment"]["torch"] and result["device"]["type"] == "cpu"
    assert result["environment"]["cpu"] == result["device"]["name"]
    assert done.stdout.count("\n") == 1


def test_events_tell_stages_in_order_and_every_iteration(run, tmp_path):
    spec = {"preset": "tiny", "iterations": 11}

    done = run("decode", spec=spec, out=tmp_path)

    stages = [e["stage"] for e in done.events if e["event"] == "progress"]
    iterations = [e for e in done.events if e["event"] == "iteration"]
    assert list(dict.fromkeys(stages)) == ["build", "warmup", "measure"]
    assert [e["index"] for e in iterations] == list(range(11))
    assert [e["latency_ns"] for e in iterations] == done.result["samples_ns"]
    assert done.events[-12] == {"event": "progress", "stage": "measure", "done": 11, "total": 11}


@pytest.mark.parametrize(
    ("name", "changed", "remedy"),
    [("gemm", {"dtype": "fp8"}, "dtype=bf16"), ("decode", {"weights": "fp8"}, "weights=native")],
)
def test_fp8_on_a_cpu_names_what_to_choose_instead(name, changed, remedy, run, tmp_path):
    done = run(name, spec={"preset": "tiny", **changed}, out=tmp_path)

    assert done.returncode != 0
    assert "compute capability 8.9" in done.stdout + done.stderr + json.dumps(done.result)
    assert remedy in done.stdout + done.stderr + json.dumps(done.result)


def trace_ranges(path):
    """Return (name, start, end) of the ranges in a trace, in microseconds."""
    with gzip.open(path) as stream:
        events = json.load(stream)["traceEvents"]
    return [
        (e["name"], float(e["ts"]), float(e["ts"]) + float(e["dur"]))
        for e in events
        if e.get("cat") == "user_annotation"
    ]


def inside(ranges, outer):
    """Return the names of the ranges that lie in the first one called `outer`."""
    _, start, end = next(r for r in ranges if r[0] == outer)
    return {name for name, s, e in ranges if s >= start and e <= end and name != outer}


def test_trace_has_the_ranges_nested_and_nothing_of_the_warm_up(run, tmp_path):
    spec = {"preset": "tiny", "mode": "train_step", "iterations": 2}

    done = run("transformer", "--pass", "trace", spec=spec, out=tmp_path)

    assert done.result["captures"] == [{"path": "trace.json.gz", "kind": "torch_trace"}]
    ranges = trace_ranges(tmp_path / "trace.json.gz")
    parts = {"attention_scores", "softmax", "attention_output"}
    assert inside(ranges, "BENCHMARK") >= {"iteration_0", "iteration_1", "forward", "backward"}
    assert inside(ranges, "forward") == {"attention", "mlp"} | parts
    assert inside(ranges, "attention") == parts
    assert sum(name == "forward" for name, _, _ in ranges) == 2
    assert sum(name == "optimizer" for name, _, _ in ranges) == 2


def test_memory_pass_on_a_cpu_says_that_it_cannot_be_had(run, tmp_path):
    done = run("decode", "--pass", "memory", spec={"preset": "tiny"}, out=tmp_path)

    assert done.result["status"] == "ok"
    assert done.result["captures"] == []
    assert [w["code"] for w in done.result["warnings"]] == ["memory_history_unavailable"]


def test_compiled_decode_has_no_break_and_no_late_compilation(run, tmp_path):
    spec = {"preset": "tiny", "compile": "default"}

    done = run("decode", spec=spec, out=tmp_path, **COMPILE_LITTLE)

    assert done.result["compile"] == {
        "mode": "default", "graph_breaks": 0, "recompiles_in_measurement": 0,
        "cuda_graphs_used": None,
    }  # fmt: skip
    assert done.events[2]["stage"] == "compile"


def test_compilation_inside_the_measured_part_is_reported(run, tmp_path):
    spec = {"preset": "tiny", "compile": "default", "warmup": 0, "iterations": 2}

    done = run("decode", spec=spec, out=tmp_path, **COMPILE_LITTLE)

    assert done.result["compile"]["recompiles_in_measurement"] == 1
    assert "recompiled_in_measurement" in [w["code"] for w in done.result["warnings"]]


def test_compiling_without_a_compiler_says_what_to_install(run, tmp_path):
    spec = {"preset": "tiny", "compile": "default"}

    done = run("decode", spec=spec, out=tmp_path, PATH=str(tmp_path), CXX="")

    assert done.returncode == 3
    assert "apt-get install g++" in done.result["error"]


def test_same_seed_gives_the_same_numbers(run, tmp_path):
    spec = {"preset": "tiny", "seed": 7}

    first, second = (run("attention", spec=spec, out=tmp_path).result for _ in range(2))

    errors = [
        [m["value"] for m in r["metrics"] if m["name"] == "max_abs_error"] for r in (first, second)
    ]
    assert errors[0] == errors[1] and 0 < errors[0][0] < 1e-5

"""Steps, operators and kernels of traces that other people published (tests/data/public)."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from analysis.readers.torch_trace.load import load_trace
from analysis.trace.attribution import attribute
from analysis.trace.operators import operator_table
from analysis.trace.ranges import phase_ranges
from analysis.trace.steps import find_steps, steps_document
from tests.conftest import H100

PUBLIC = Path(__file__).parents[2] / "data" / "public"


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(json.load(file)["traceEvents"])


def launched_in(found: list[dict[str, Any]], prefix: str) -> list[int]:
    """Return how many kernels were launched inside each range with the name's beginning."""
    launch = {
        e["args"]["correlation"]: float(e["ts"])
        for e in found
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    times = [launch[e["args"]["correlation"]] for e in found if e.get("cat") == "kernel"]
    ranges = [
        (float(e["ts"]), float(e["ts"]) + float(e["dur"]))
        for e in found
        if e.get("cat") == "user_annotation" and e["name"].startswith(prefix)
    ]
    return [sum(a <= t <= b for t in times) for a, b in ranges]


@pytest.mark.parametrize("name", ["vllm_decode", "sglang_decode"])
def test_a_step_of_a_serving_engine_holds_what_its_range_launched(name: str) -> None:
    path = PUBLIC / f"{name}.trace.json.gz"

    document = steps_document(find_steps(load_trace(path).trace))

    assert (document["source"], document["count"]) == ("ranges", 1)
    assert [document["num_kernels"]] == launched_in(events(path), "execute_")


def test_a_forward_pass_run_twice_is_two_steps() -> None:
    path = PUBLIC / "alexnet_forward.trace.json.gz"

    document = steps_document(find_steps(load_trace(path).trace))

    assert (document["source"], document["count"]) == ("repetition", 2)
    assert document["num_kernels"] == 39


def test_passes_over_layers_that_nobody_marked_are_three_steps() -> None:
    path = PUBLIC / "normalization_layers.trace.json.gz"
    num_kernels = sum(e.get("cat") == "kernel" for e in events(path))

    document = steps_document(find_steps(load_trace(path).trace))

    assert (document["source"], document["count"]) == ("repetition", 3)
    # The first pass accumulates no gradients yet and launches fewer.
    assert document["num_kernels"] == pytest.approx(num_kernels / 3, abs=5)


def test_the_profilers_last_step_without_work_is_not_the_usual_one() -> None:
    path = PUBLIC / "toy_training_mi250.trace.json.gz"

    document = steps_document(find_steps(load_trace(path).trace))

    assert (document["source"], document["count"]) == ("profiler_step", 2)
    assert [document["num_kernels"], 0] == launched_in(events(path), "ProfilerStep")
    assert document["excluded"] == [{"reason": "no GPU work", "count": 1}]


def test_own_kernel_time_of_operators_is_what_the_trace_itself_says() -> None:
    path = H100 / "kineto" / "train_bf16.json.gz"
    found = events(path)
    trace = load_trace(path).trace

    frame = operator_table(trace, attribute(trace, phase_ranges(trace)), find_steps(trace)).frame  # type: ignore[union-attr]

    # The profiler ties a kernel to its operator by `External id`.
    names = {
        e["args"]["External id"]: e["name"]
        for e in found
        if e.get("cat") == "cpu_op" and "External id" in e.get("args", {})
    }
    own: dict[str, int] = {}
    for e in found:
        if e.get("cat") == "kernel":
            name = names[e["args"]["External id"]]
            own[name] = own.get(name, 0) + round(1000 * float(e["dur"]))
    for name in ("aten::mm", "aten::copy_", "aten::mul", "aten::bmm"):
        mine = frame.loc[frame["name"] == name, "self_kernel_ns"].sum()
        assert mine == pytest.approx(own[name], abs=1000), name

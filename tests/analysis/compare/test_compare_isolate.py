"""Two runs that differ in several fields: the pair that isolates each is named, or what to run."""

from typing import Any

from analysis.compare.offered import isolating_pairs
from analysis.compare.records import Difference
from analysis.runview import RunRow

BASE = {"compile": "none", "dtype": "fp32", "seed": 0}


def run(name: str, gpu: str = "H100", **params: Any) -> RunRow:
    return RunRow(
        id=name, name=name, source="submitted", status="done", workload="decode",
        params={**BASE, **params}, gpu_model=gpu,
    )  # fmt: skip


def differ(field: str, a: str, b: str, effect: str = "breaks") -> Difference:
    return Difference(field=field, a=a, b=b, effect=effect)  # type: ignore[arg-type]


TWO = (
    differ("dtype", "fp32", "bf16"),
    differ("compile", "none", "default", "intended"),
    differ("environment.torch", "2.8", "2.9", "noted"),
)


def test_each_field_has_the_pair_that_differs_in_it_alone() -> None:
    a, b = run("a"), run("b", dtype="bf16", compile="default")
    other = run("other", dtype="bf16", seed=3)
    dtype, mode = isolating_pairs(a, b, TWO, [b, a, other])
    assert (dtype.variable, dtype.run_a, dtype.run_b) == ("dtype", "a", "other")
    assert (mode.variable, mode.run_a, mode.run_b) == ("compile", "other", "b")
    assert (mode.a, mode.b) == ("none", "default")


def test_a_pair_that_nobody_ran_is_told_as_the_job_that_is_missing() -> None:
    a, b = run("a"), run("b", gpu="H200", dtype="bf16")
    differs = (differ("dtype", "fp32", "bf16"), differ("gpu", "H100", "H200", "intended"))
    dtype, gpu = isolating_pairs(a, b, differs, [a, b])
    assert dtype.run_b is None and dtype.missing["params"] == {**BASE, "dtype": "bf16"}
    assert dtype.missing["gpu"] == "H100"
    assert gpu.missing == {"workload": "decode", "params": BASE, "gpu": "H200"}


def test_one_field_alone_and_what_no_job_says_need_no_other_pair() -> None:
    a, b = run("a"), run("b", dtype="bf16")
    assert isolating_pairs(a, b, TWO[:1], [a, b]) == ()
    noted = (TWO[0], differ("environment.clock_lock", "on", "off"))
    assert isolating_pairs(a, b, noted, [a, b]) == ()


def test_the_sizes_of_a_model_are_one_variable() -> None:
    a = run("a", preset="small", layers=2, d_model=64)
    b = run("b", preset="large", layers=8, d_model=256, dtype="bf16")
    differs = (
        differ("layers", "2", "8"), differ("d_model", "64", "256"), differ("dtype", "fp32", "bf16"),
    )  # fmt: skip
    between = run("between", preset="large", layers=8, d_model=256)
    found = {p.variable: p for p in isolating_pairs(a, b, differs, [between])}
    assert set(found) == {"dtype", "model"}
    assert (found["model"].a, found["model"].b) == ("small", "large")
    assert (found["model"].run_a, found["model"].run_b) == ("a", "between")
    assert (found["dtype"].run_a, found["dtype"].run_b) == ("between", "b")

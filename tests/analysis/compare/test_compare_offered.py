"""Which comparisons the stored runs offer: those that differ in one field."""

from typing import Any

from analysis.compare.offered import offers
from analysis.runview import RunRow

SIZES = {"context": 512, "dtype": "bf16"}


def row(run_id: str, workload: str, gpu: str, params: dict[str, Any]) -> RunRow:
    return RunRow(id=run_id, name=run_id, source="submitted", status="done", workload=workload,
                  gpu_model=gpu, params=params)  # fmt: skip


def run(run_id: str, gpu: str = "H100", **params: Any) -> RunRow:
    return row(run_id, "decode", gpu, {**SIZES, **params})


def test_runs_that_differ_in_one_variable_are_offered_from_the_plain_value() -> None:
    (found,) = offers([run("c", compile="max-autotune"), run("b", compile="default"),
                       run("a", compile="none")])  # fmt: skip

    assert (found.variable, found.a.id) == ("compile", "a")
    assert [b.id for b in found.b] == ["c", "b"]
    assert found.values == ("none", "max-autotune", "default") and found.same == SIZES


def test_runs_that_differ_in_two_fields_or_in_a_size_are_not() -> None:
    assert offers([run("a", compile="none"), run("b", compile="default", context=1024)]) == ()
    assert offers([run("a", context=1), run("b", context=2)]) == ()


def test_of_repeats_of_a_job_the_newest_is_taken() -> None:
    found = offers([run("new", compile="none", seed=2), run("old", compile="none", seed=1),
                    run("b", compile="default")])  # fmt: skip

    assert [(f.a.id, [b.id for b in f.b]) for f in found] == [("new", ["b"])]


def test_the_same_job_on_two_gpus_is_offered() -> None:
    (found,) = offers([run("a", gpu="H200", compile="none"), run("b", compile="none")])

    assert found.variable == "gpu" and set(found.values) == {"H100", "H200"}


def test_the_parts_of_a_tile_are_one_variable() -> None:
    (found,) = offers([run("a", tile_m=64, tile_n=64), run("b", tile_m=128, tile_n=32)])

    assert found.variable == "tile"
    assert set(found.values) == {"tile_m 64, tile_n 64", "tile_m 128, tile_n 32"}


def test_no_variable_hides_the_others() -> None:
    runs = [run(f"c{i}{m}", context=i, compile=m) for i in range(9) for m in ("none", "default")]
    runs += [run("x", kernel="v1"), run("y", kernel="v2")]

    assert [f.variable for f in offers(runs, limit=2)] == ["compile", "kernel"]


def test_an_own_program_with_and_without_a_setting_is_offered() -> None:
    jobs = [("with", "NVIDIA_TF32_OVERRIDE=1"), ("without", "none")]
    runs = [
        row(name, "command", "H200", {"argv": '["prog"]', "settings": settings})
        for name, settings in jobs
    ]

    (found,) = offers(runs)

    assert (found.variable, found.values) == ("settings", ("none", "NVIDIA_TF32_OVERRIDE=1"))

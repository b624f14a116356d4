"""A study opens with the runs that differ in what its tables lay out, and in nothing else."""

from dataclasses import replace
from typing import Any

from analysis.runview import RunView
from analysis.studies import Table
from analysis.studies.engine.records import Study
from analysis.studies.engine.run import one_grid
from analysis.studies.engine.values import LATENCY
from tests.analysis.run_views import empty_view


def study(**job: object) -> Study:
    table = Table(title="t", rows=("gpu", "compile"), columns=("seq_len",), values=(LATENCY,))
    return Study(
        name="s",
        title="s",
        question="",
        about="",
        filters={},
        tables=(table,),
        job={"workload": "gemm", "params": job},
    )


def runs(*params: dict[str, Any], workload: str = "gemm") -> list[RunView]:
    view = empty_view()
    return [
        replace(view, run=replace(view.run, id=f"{workload}{i}", workload=workload, params=p))
        for i, p in enumerate(params)
    ]


def opened(views: list[RunView], **job: object) -> tuple[list[str], dict[str, list[str]]]:
    kept, fixed = one_grid(study(**job), views)
    return [view.run.id for view in kept], fixed


def test_runs_that_differ_in_laid_out_fields_alone_all_stay() -> None:
    given = runs({"compile": "none", "batch": 1}, {"compile": "default", "batch": 1})
    assert opened(given) == (["gemm0", "gemm1"], {})


def test_the_value_of_most_runs_stays() -> None:
    given = runs(*({"batch": b} for b in (1, 4, 4)))
    assert opened(given) == (["gemm1", "gemm2"], {"batch": ["4"]})


def test_the_value_of_the_studys_own_job_stays_where_a_run_has_it() -> None:
    given = runs(*({"batch": b} for b in (1, 4, 4)))
    assert opened(given, batch=1) == (["gemm0"], {"batch": ["1"]})
    assert opened(given, batch=2) == (["gemm1", "gemm2"], {"batch": ["4"]})


def test_runs_without_a_parameter_stay() -> None:
    given = runs({"weights": "bf16"}, {"weights": "bf16"}, {"weights": "fp8"}, {"batch": 1})
    assert opened(given) == (["gemm0", "gemm1", "gemm3"], {"weights": ["bf16"]})


def test_each_workload_has_a_grid_of_its_own() -> None:
    given = [
        *runs(*({"batch": b} for b in (1, 4, 4))),
        *runs(*({"batch": b} for b in (8, 8, 2)), workload="moe"),
    ]
    assert opened(given) == (["gemm1", "gemm2", "moe0", "moe1"], {"batch": ["4", "8"]})

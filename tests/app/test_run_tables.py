"""Tables of a run's page: counters by share of time, versions of every tool, classes by phase."""

from types import SimpleNamespace

import pandas as pd
import pytest

from app.ui.run.counters import by_share
from app.ui.run.files import versions
from app.ui.run.phases import class_sums


def test_counters_open_by_the_kernels_share_of_the_run() -> None:
    kernels = pd.DataFrame(
        {
            "name": ["void small<float>(int)", "big"],
            "short_name": ["small", "big"],
            "total_ns": [100, 300],
        }
    )
    counters = pd.DataFrame(
        {
            "name": ["void small<float>(float)", "big", "other"],  # two tools write one differently
            "short_name": ["small", "big", "other"],
            "duration_ns": [90.0, 10.0, 500.0],
        }
    )
    found = by_share(counters, kernels)
    assert found["short_name"].tolist() == ["big", "small", "other"]
    assert found["share_frac"].tolist()[:2] == [0.75, 0.25]
    assert by_share(counters, kernels.iloc[:0])["duration_ns"].tolist() == [500.0, 90.0, 10.0]


def test_every_profiler_of_a_run_is_named_with_its_version() -> None:
    captures = pd.DataFrame(
        {
            "tool": ["nsys", "nsys", "ncu", None],
            "tool_version": ["2025.3.1", "2025.3.1", None, None],
            "pass": ["nsys", "nsys", "ncu", "clean"],
        }
    )
    environment = {"torch": "2.11", "driver": "580", "cxx": "g++", "cupti_version": "13"}
    run = SimpleNamespace(environment=environment)
    view = SimpleNamespace(run=run, captures=captures)
    tools, settings = versions(view)  # type: ignore[arg-type]
    assert tools == [
        ("Nsight Systems", "2025.3.1 (nsys)"),
        ("Nsight Compute", "not stated (ncu)"),
        ("torch", "2.11"),
        ("driver", "580"),
        ("cupti_version", "13"),
    ]
    assert settings == [("cxx", "g++")]


def test_sums_by_class_and_phase_keep_the_whole_time() -> None:
    rows = pd.DataFrame(
        {
            "phase": ["forward", "forward", "backward", "forward"],
            "category": ["gemm", "copy", "gemm", "gemm"],
            "total_ns": [3.0, 1.0, 9.0, 2.0],
        }
    )
    found = class_sums(rows)
    assert found.to_dict("list") == {
        "phase": ["backward", "forward", "forward"],
        "category": ["gemm", "gemm", "copy"],
        "total_ns": [9.0, 5.0, 1.0],
    }
    assert found["total_ns"].sum() == pytest.approx(rows["total_ns"].sum())

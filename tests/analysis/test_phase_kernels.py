"""Kernels by phase add up to what the spans hold, by steps and without."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.per_step import phase_kernels, phase_of

NO_STEPS = pd.DataFrame({"process": [], "is_regular": [], "start_ns": [], "end_ns": []})


def spans(path: Path, rows: list[tuple[int, int, str, str, str | None, int | None]]) -> Path:
    """Write (start_ns, end_ns, kind, name, path, launch_start_ns) as a span file."""
    start, end, kind, name, phase, launch = (list(c) for c in zip(*rows, strict=True))
    table = pa.table(
        {
            "start_ns": pa.array(start, pa.int64()),
            "end_ns": pa.array(end, pa.int64()),
            "process": pa.array([0] * len(rows), pa.int32()),
            "kind": pa.array(kind).dictionary_encode(),
            "name": pa.array(name).dictionary_encode(),
            "path": pa.array(phase, pa.string()).dictionary_encode(),
            "launch_start_ns": pa.array(launch, pa.int64()),
        }
    )
    pq.write_table(table, path)
    return path


ROWS = [
    (0, 100, "kernel", "warm", "BENCHMARK/iteration_0/forward", -10),
    (1000, 1300, "kernel", "gemm", "BENCHMARK/iteration_1/forward/mlp", 900),
    (1300, 1350, "memcpy", "HtoD", "BENCHMARK/iteration_1/forward", 910),
    (1400, 1450, "kernel", "add", "BENCHMARK/iteration_1", 920),
    (2000, 2100, "kernel", "gemm", "BENCHMARK/iteration_2/forward/mlp", None),
]


def test_phases_of_all_iterations_are_one_and_transfers_are_no_kernels(tmp_path: Path) -> None:
    found, num = phase_kernels([spans(tmp_path / "a.parquet", ROWS)], NO_STEPS)
    rows = {(r.phase, r.name_): (r.count_, r.total_ns) for r in named(found)}
    assert num is None
    assert rows == {
        ("forward", "warm"): (1, 100),
        ("forward/mlp", "gemm"): (2, 400),
        ("", "add"): (1, 50),
    }


def named(frame: pd.DataFrame) -> list[object]:
    return list(frame.rename(columns={"name": "name_", "count": "count_"}).itertuples())


def test_a_step_holds_what_was_launched_in_the_regular_ones(tmp_path: Path) -> None:
    steps = pd.DataFrame(
        {
            "process": [0, 0, 0],
            "is_regular": [False, True, True],
            "start_ns": [-50, 850, 1800],
            "end_ns": [800, 1700, 2500],
        }
    )
    found, num = phase_kernels([spans(tmp_path / "a.parquet", ROWS)], steps)
    rows = {(r.phase, r.name_): (r.count_, r.total_ns) for r in named(found)}
    assert num == 2
    assert rows == {("forward/mlp", "gemm"): (1, 200), ("", "add"): (0.5, 25)}


@pytest.mark.parametrize(
    ("path", "phase"),
    [
        ("", ""),
        ("BENCHMARK", ""),
        ("BENCHMARK/iteration_3", ""),
        ("BENCHMARK/iteration_3/forward", "forward"),
        ("BENCHMARK/overlap_region/compute", "overlap_region/compute"),
        ("train/epoch", "train/epoch"),
    ],
)
def test_a_phase_is_what_lies_below_the_iteration(path: str, phase: str) -> None:
    assert phase_of(path) == phase

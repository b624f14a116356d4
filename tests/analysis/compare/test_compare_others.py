"""Quality marks, memory by site, and the scoreboard across GPUs."""

import numpy as np
import pandas as pd
import pytest

from analysis.compare.engine import compare_memory
from analysis.compare.evaluate import find_flags
from analysis.compare.gpus import make_scoreboard
from tests.analysis.compare.views import build_view

RNG = np.random.default_rng(8)


def steady(level: float = 2.0, noise: float = 0.005) -> np.ndarray:
    return level * (1 + noise * RNG.standard_normal(40))


def test_quiet_processes_have_no_marks() -> None:
    assert find_flags([np.full(40, 2.0) + 0.001 * (np.arange(40) % 3)] * 3, "A") == ()


def test_a_noisy_process_among_quiet_ones_is_named() -> None:
    marks = find_flags([steady(), steady(), steady(), steady(noise=0.08)], "A")

    noisy = next(m for m in marks if m.code == "noisy_process")
    assert "process 3 of 4" in noisy.message


def test_a_process_at_another_level_is_named() -> None:
    marks = find_flags([steady(), steady(), steady(2.6), steady()], "B")

    assert "process 2 of 4" in next(m for m in marks if m.code == "noisy_process").message


def test_warm_up_is_marked_as_drift() -> None:
    warming = 2.0 * (1 + 0.3 * np.exp(-np.arange(40) / 8))

    marks = find_flags([warming], "A")

    assert "drift" in {m.code for m in marks}


def test_memory_growth_is_by_site_and_adds_up() -> None:
    columns = ["device", "site", "phase", "bytes", "count"]
    a = pd.DataFrame([(0, "m.py:1 f", None, 100, 1), (0, "m.py:2 g", None, 50, 2)], columns=columns)
    b = pd.DataFrame([(0, "m.py:1 f", None, 400, 4), (0, "m.py:3 h", None, 70, 1)], columns=columns)

    rows = compare_memory(build_view(memory_at_peak=a), build_view(memory_at_peak=b))

    assert [(r.site, r.delta_bytes) for r in rows] == [
        ("m.py:1 f", 300),
        ("m.py:3 h", 70),
        ("m.py:2 g", -50),
    ]


COST = {"bytes": 4e8, "flops": 1e9, "flops_dtype": "bf16"}


def test_scoreboard_puts_latency_beside_shares_of_each_gpus_peaks() -> None:
    fast = {"copy_bytes_per_s": 8e11, "gemm_bf16_flops_per_s": 1e14}
    slow = {"copy_bytes_per_s": 4e11}
    rows = make_scoreboard(
        [
            build_view(((2.0,) * 5,), gpu_model="slow", cost=COST, peaks=slow),
            build_view(((1.0,) * 5,), gpu_model="fast", cost=COST, peaks=fast),
        ]
    )

    assert [(r.gpu, r.relative_latency) for r in rows] == [("slow", 1.0), ("fast", 0.5)]
    assert [r.bandwidth_frac for r in rows] == [pytest.approx(0.5), pytest.approx(0.5)]
    assert rows[0].compute_frac is None
    assert rows[1].compute_frac == pytest.approx(0.01)


def test_a_share_over_one_is_an_error_not_a_figure() -> None:
    peaks = {"copy_bytes_per_s": 1e11}

    row = make_scoreboard([build_view(((1.0,) * 5,), cost=COST, peaks=peaks)])[0]

    assert row.bandwidth_frac is None
    assert "of the measured peak" in (row.error or "")

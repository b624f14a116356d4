"""Our Triton kernels compute what float64 does, on even and ragged shapes (interpreter, CPU)."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from core.config import ROOT

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="no triton")
FP16_LIMIT = 1e-3
"""Rounding of float16 inputs and outputs leaves 2e-4 to 4e-4; a wrong tile or mask far more."""


@pytest.fixture(scope="module")
def errors():
    done = subprocess.run(
        [sys.executable, "-m", "tests.workloads.kernel_errors"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "case",
    [
        [128, 16, True, True],
        [128, 16, False, False],
        [100, 16, True, False],
        [72, 32, False, False],
        [16, 128, True, False],
    ],
)
def test_attention_and_its_gradients_match_float64(errors, case):
    found = errors["attention"][json.dumps(case)]

    assert set(found) == {"out", "dq", "dk", "dv"}
    assert max(found.values()) < FP16_LIMIT


@pytest.mark.parametrize(
    "case", [[1, 4, 4, 100, 64], [2, 8, 2, 300, 64], [1, 2, 1, 16, 128], [1, 2, 2, 513, 64]]
)
def test_attention_of_one_query_matches_float64_split_grouped_and_ragged(errors, case):
    assert errors["decode_attention"][json.dumps(case)]["out"] < FP16_LIMIT


@pytest.mark.parametrize(
    "case", [[1, 48, 100, 1], [7, 40, 128, 3], [33, 70, 90, 2], [16, 64, 64, 1]]
)
def test_products_match_float64_with_split_k_and_ragged_edges(errors, case):
    assert max(errors["gemm"][json.dumps(case)].values()) < FP16_LIMIT


@pytest.mark.parametrize(
    "case", [[700, 8, 2], [300, 60, 1], [1, 3, 2], [0, 3, 2], [64, 300, 4], [900, 2, 2, 3]]
)
def test_regroup_is_a_stable_sort(errors, case):
    assert errors["regroup"][json.dumps(case)] == {"order": 0.0, "starts": 0.0}


@pytest.mark.parametrize("case", [[100], [64]])
def test_rms_norm_matches_float64(errors, case):
    assert errors["rms_norm"][json.dumps(case)]["out"] < FP16_LIMIT

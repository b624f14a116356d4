"""What calls are by their names, however many names a capture has."""

import pytest

from analysis.trace import calls
from analysis.trace.calls import named
from tests.analysis.trace.made import trace


@pytest.mark.parametrize("few", [0, 1 << 10])
def test_calls_are_told_by_name_among_few_names_and_many(few, monkeypatch):
    monkeypatch.setattr(calls, "FEW_NAMES", few)
    given = trace(
        ranges=[("cudaLaunchKernel", 0, 9, 0)],
        calls=[("cudaMalloc", 0, 1, 0), ("cudaLaunchKernel", 1, 2, 0), ("cudaMalloc", 3, 4, 0)],
    )

    assert named(given, "cudaMalloc".__eq__).tolist() == [True, False, True]
    assert named(given, "cudaLaunchKernel".__eq__).tolist() == [False, True, False]
    assert named(given, "cudaFree".__eq__).tolist() == [False] * 3
    assert named(trace(), "cudaFree".__eq__).tolist() == []

"""Completion of the filter of runs: keys, values, and terms not used yet."""

import pandas as pd

from app.ui.runs_table import completions

RUNS = pd.DataFrame(
    {
        "workload": ["decode", "decode", "gemm"],
        "gpu_model": ["NVIDIA H200"] * 3,
        "status": ["done", "done", "oom"],
        "source": ["demo"] * 3,
        "tags": ["paper, h200", "", "paper"],
        "params": [{"compile": "none"}, {"compile": "default"}, {"m": 4096}],
    }
)


def test_values_of_a_key_are_offered_after_its_colon() -> None:
    assert completions("status:done compile:", RUNS) == ["compile:none", "compile:default"]
    assert completions("compile:d", RUNS) == ["compile:default"]
    assert completions("gpu:", RUNS) == ['gpu:"NVIDIA H200"']


def test_keys_that_begin_with_the_last_word_are_offered() -> None:
    assert completions("status:done comp", RUNS) == ["compile:"]
    assert "latency:" in completions("lat", RUNS)


def test_a_key_already_in_the_filter_is_not_offered_again() -> None:
    assert "tag:paper" in completions("", RUNS)
    assert not any(t.startswith("tag:") for t in completions("tag:paper ", RUNS))


def test_a_number_that_some_runs_lack_is_offered_as_it_was_given() -> None:
    runs = RUNS.assign(params=[{"batch": 1}, {"batch": 2}, {}])
    assert completions("batch:", runs) == ["batch:1", "batch:2"]

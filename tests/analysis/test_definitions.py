"""Every number shown has one definition."""

from pathlib import Path

import pytest

from analysis import tables
from analysis.definitions import DEFINITIONS, define, tooltip
from analysis.readers import read
from analysis.runview import CLASSIFIED_KERNEL_COLUMNS

H100 = Path(__file__).parents[1] / "data" / "h100"

SUMMARY_KEYS = (
    *("num_kernels", "kernel_time_ns", "busy_ns", "span_ns", "idle_frac", "gemm_frac"),
    *("attention_frac", "unclassified_frac", "opaque_graph_ns", "num_graph_launches"),
    *("peak_memory_bytes", "latency_ms", "mfu", "mbu"),
)
LATENCY_KEYS = ("median", "ci95", "mean", "std", "min", "max", "cv", "p95", "fast", "n")
ORDERING_ONLY = {"first_start_ns"}


@pytest.mark.parametrize("key", [*SUMMARY_KEYS, *(f"latency_ms.{k}" for k in LATENCY_KEYS)])
def test_every_summary_number_is_defined(key):
    assert define(key).meaning.endswith(".")


@pytest.mark.parametrize(
    "name",
    ["nsys/train_bf16.sqlite", "nsys/decode_cuda_graph_whole.sqlite", "nsys/no_gpu_work.sqlite",
     "kineto/train_bf16.json.gz", "memory/train_oom.pickle", "nsys/decode_eager.nvtx_sum.csv"],
)  # fmt: skip
def test_every_headline_number_of_a_capture_is_defined(name):
    assert set(read(H100 / name).summary) - set(DEFINITIONS) == set()


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("kernels", tables.KERNEL_COLUMNS + CLASSIFIED_KERNEL_COLUMNS),
        ("phases", tables.PHASE_COLUMNS),
        ("api_calls", tables.API_CALL_COLUMNS),
        ("transfers", tables.TRANSFER_COLUMNS),
        ("gaps", tables.GAP_COLUMNS),
        ("counters", tables.COUNTER_COLUMNS),
    ],
)
def test_every_column_is_defined(table, columns):
    missing = {c for c in columns if f"{table}.{c}" not in DEFINITIONS} - ORDERING_ONLY
    assert missing == set()


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=lambda d: d.key)
def test_units_agree_with_the_names(definition):
    endings = {"_ns": "ns", "_bytes": "B", "_frac": "fraction", "_pct": "%", "_ms": "ms"}
    unit = next((u for e, u in endings.items() if definition.key.endswith(e)), definition.unit)
    assert definition.unit == unit
    assert definition.label and definition.obtained


def test_a_tooltip_says_meaning_formula_and_origin():
    text = tooltip("profiled_idle_frac")
    assert "no kernel ran" in text and "1 - busy_ns / span_ns" in text and "nsys" in text

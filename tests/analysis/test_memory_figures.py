"""Each memory figure of a run comes from one named source."""

from pathlib import Path

import pandas as pd

from analysis.assemble import assemble
from analysis.iterations import top_phase
from analysis.memory_figures import captured_memory, memory_document, memory_summary
from analysis.rundata import RUN_SAMPLE_COLUMNS, RunCapture, RunData
from analysis.tables import CaptureKind, CaptureTables

SNAPSHOT = {
    "peak_bytes": 5_401_100_000,
    "peak_allocated_bytes": 5_411_100_000,
    "peak_reserved_bytes": 5_900_000_000,
    "baseline_bytes": 2_140_000_000,
}
COUNTERS = {"peak_allocated_bytes": 5_414_900_000, "peak_reserved_bytes": 6_000_000_000}
DRIVER = {"peak_bytes": 6_490_000_000, "baseline_bytes": 0, "source": "cuda_allocations"}
EVERY = {"snapshot": SNAPSHOT, "driver": DRIVER}


def capture(pass_name: str, kind: CaptureKind, memory: dict) -> RunCapture:
    tables = CaptureTables(kind=kind, path=Path("x"), tool="t", memory=memory)
    return RunCapture(
        pass_name=pass_name, process=0, tables=tables, file_name=pass_name, path=Path("x"),
        num_bytes=1, sha256=pass_name, source_sha256=pass_name,
    )  # fmt: skip


def run_data(*captures: RunCapture, **changes) -> RunData:
    fields = {
        "status": "done",
        "captures": captures,
        "samples": pd.DataFrame({name: [] for name in RUN_SAMPLE_COLUMNS}),
        "content_hash": "x",
    }
    return RunData(**(fields | changes))


def test_all_sources_are_shown_apart_and_each_holds_the_one_before() -> None:
    found = memory_summary(COUNTERS, EVERY)

    chain = [found[f"{name}_bytes"] for name in ("requested", "allocated", "reserved", "driver")]
    assert chain == sorted(chain) == [5_401_100_000, 5_414_900_000, 6_000_000_000, 6_490_000_000]
    assert found["memory_sources"] == {
        "requested_bytes": "snapshot",
        "allocated_bytes": "allocator",
        "reserved_bytes": "allocator",
        "driver_bytes": "driver",
        "peak_memory_bytes": "allocator",
    }
    assert found["peak_memory_bytes"] == found["allocated_bytes"]


def test_without_counters_the_snapshot_counts_rounded_blocks() -> None:
    found = memory_summary({}, {"snapshot": SNAPSHOT})

    assert (found["allocated_bytes"], found["requested_bytes"]) == (5_411_100_000, 5_401_100_000)
    assert found["memory_sources"]["allocated_bytes"] == "snapshot"


def test_the_driver_alone_is_named_and_says_nothing_of_what_was_allocated() -> None:
    found = memory_summary({}, {"driver": DRIVER})

    assert found["peak_memory_bytes"] == found["driver_bytes"] == 6_490_000_000
    assert found["memory_sources"]["peak_memory_bytes"] == "driver"
    assert "allocated_bytes" not in found and "reserved_bytes" not in found


def test_a_snapshot_beside_a_larger_driver_figure_stays_the_curves_source() -> None:
    memory = [
        capture("nsys", CaptureKind.NSYS_SQLITE, DRIVER),
        capture("memory", CaptureKind.MEMORY_SNAPSHOT, SNAPSHOT),
    ]
    by_pass = {c.pass_name: [c] for c in memory}

    shown = memory_document(captured_memory(by_pass))

    assert (shown["source"], shown["baseline_bytes"]) == ("snapshot", 2_140_000_000)
    assert shown["driver"]["peak_bytes"] == 6_490_000_000


def test_a_profiled_pass_that_took_less_than_was_reserved_is_said_and_not_shown() -> None:
    nsys = capture("nsys", CaptureKind.NSYS_SQLITE, DRIVER | {"peak_bytes": 5_950_000_000})

    run = assemble(run_data(nsys, memory_peaks=COUNTERS))

    assert "driver_bytes" not in run.summary
    assert [w.warning.code for w in run.warnings] == ["memory_passes_differ"]


def test_counters_of_zero_are_unknown() -> None:
    assert memory_summary({"peak_allocated_bytes": 0, "peak_reserved_bytes": 0}, {}) == {}


def test_how_often_the_memory_was_full_is_in_the_summary_only_where_it_was() -> None:
    assert memory_summary({**COUNTERS, "num_alloc_retries": 12}, {})["num_alloc_retries"] == 12
    assert "num_alloc_retries" not in memory_summary(COUNTERS, {})


def test_an_out_of_memory_run_has_one_requested_size() -> None:
    event = {"requested_bytes": 30_720_000, "phase": "optimizer"}
    snapshot = capture("memory", CaptureKind.MEMORY_SNAPSHOT, SNAPSHOT | {"oom": event})
    own = {"requested_bytes": 31_457_280, "phase": "optimizer"}

    run = assemble(run_data(snapshot, status="oom", oom=own))

    assert run.data.oom == own | {"requested_bytes": 30_720_000, "segment_bytes": 31_457_280}
    assert run.memory["oom"]["requested_bytes"] == run.data.oom["requested_bytes"]


def test_phases_of_our_own_runs_lie_below_benchmark_and_iteration() -> None:
    paths = ("BENCHMARK/iteration_3/forward/attention", "backward", "BENCHMARK/iteration_3", None)

    assert [top_phase(path) for path in paths] == ["forward", "backward", "", ""]

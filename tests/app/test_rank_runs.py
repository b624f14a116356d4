"""Traces of several ranks make one run: its numbers, its verdict, its tab and its timeline."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from analysis.verdict import run_verdict
from analysis.verdict.ranks import filled_by_compute, rank_limit
from app.imports import import_paths
from app.show import show_document
from app.ui.run.kernels import FEW, telling_ranks
from app.ui.timeline.load import load_timeline
from core.config import data_dir
from db.connection import opened
from db.fetch import run_view
from tests.analysis.made_rank_traces import write_trace


def imported(folder: Path, traces: list[Path]) -> Any:
    data = data_dir(str(folder))
    answer = import_paths(data, traces)
    with opened(data.db_path, is_reader=True) as db:
        return run_view(db, data, answer.run_id)


@pytest.fixture(scope="module")
def late_view(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two ranks; rank 1 starts each step 300 us late."""
    folder = tmp_path_factory.mktemp("late")
    traces = [write_trace(folder / f"t{rank}.json.gz", rank, late_us=300 * rank) for rank in (0, 1)]
    return imported(folder / "data", traces)


def test_ranks_and_collectives_are_shown(late_view: Any) -> None:
    document = show_document(late_view)

    first, second = document["ranks"]
    assert (first["rank"], second["rank"]) == (0, 1)
    # 6 steps: 400 us of compute each; the all-reduce lasts 500 us on rank 0, 200 us on rank 1.
    assert first["compute_ns"] == second["compute_ns"] == 6 * 400_000
    assert (first["exposed_ns"], second["exposed_ns"]) == (6 * 500_000, 6 * 200_000)
    assert (first["wait_ns"], second["wait_ns"]) == (6 * 300_000, 0)
    assert second["late_ns"] == 6 * 300_000
    (reduce,) = document["collectives"]
    assert (reduce["kind"], reduce["num_bytes"], reduce["num_calls"]) == (
        "all_reduce",
        4_000_000,
        12,
    )
    assert reduce["transfer_bus_gbps"] == pytest.approx(4e6 / 200e3)
    assert document["summary"]["num_ranks"] == 2
    assert document["summary"]["step_skew_ns"] == 300_000


def test_verdict_names_the_late_rank_and_where_it_was(late_view: Any) -> None:
    verdict = run_verdict(late_view)

    assert str(verdict.kind) == "straggler"
    assert verdict.headline == "Rank 1 is late by 0.3 ms a step, in load_batch"
    assert "it comes last in 5 of 5 steps; the first is left out" in verdict.evidence


def test_exposed_communication_below_the_idle_time_is_no_verdict(tmp_path: Path) -> None:
    traces = [write_trace(tmp_path / f"rank{rank}.json.gz", rank) for rank in (0, 1)]

    view = imported(tmp_path / "data", traces)

    verdict = run_verdict(view)
    # 6 all-reduces of 500 us that nothing covers, in a span of 5 steps of 2 ms and 900 us; idle
    # time is more than that, so it is what limits the run.
    assert str(verdict.kind) not in ("straggler", "communication_bound")
    assert view.ranks["exposed_by_kind"]["all_reduce"] == pytest.approx(3_000 / 10_900)


def test_a_folder_of_traces_is_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(3):
        write_trace(folder / f"worker{rank}.pt.trace.json.gz", rank, num_ranks=4)
    (folder / "notes.txt").write_text("three of four ranks")

    view = imported(tmp_path / "data", [folder])

    assert [row["rank"] for row in view.ranks["ranks"]] == [0, 1, 2]
    assert view.ranks["missing"] == [3]
    assert "rank 3 of 4 is not here" in " ".join(w.message for w in view.warnings)


def test_files_of_a_folder_that_are_in_no_number_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    first = write_trace(folder / "rank0.json.gz", 0)
    (folder / "rank0 again.json.gz").write_bytes(first.read_bytes())
    (folder / "rank1.json").write_text("")
    (folder / "notes.txt").write_text("nothing of ours")

    view = imported(tmp_path / "data", [folder])

    told = {w.code: w.message for w in view.warnings}["files_left_out"]
    assert "rank1.json: the file is empty" in told
    assert ".json.gz: the same contents as another file" in told
    assert "notes.txt" not in told


def test_timeline_has_lanes_by_rank(late_view: Any) -> None:
    from app.ui.data import _ranks_of_spans

    found = load_timeline(late_view.span_paths, dict(_ranks_of_spans(late_view)))

    assert found is not None
    assert found.lanes == tuple(f"rank {r}, stream {s}" for r in (0, 1) for s in (7, 20))


def test_tab_of_ranks_is_drawn(late_view: Any) -> None:
    def tab(view):  # type: ignore[no-untyped-def]
        from app.ui.run.ranks import ranks

        ranks(view)

    at = AppTest.from_function(tab, default_timeout=60, kwargs={"view": late_view}).run()

    assert not at.exception
    text = " ".join(m.value for m in (*at.markdown, *at.caption))
    assert "all others waited" in text and "rank 1, in load_batch" in text
    assert len(at.dataframe) == 2


def made_view(
    ranks: list[dict[str, Any]],
    steps: list[dict[str, Any]],
    *,
    period_ms: float,
    clean_ms: float | None = None,
) -> Any:
    """Return what a verdict on ranks reads, with the clean pass if there was one."""
    return SimpleNamespace(
        ranks={"ranks": ranks, "steps": steps, "exposed_by_kind": {"all_reduce": 1.0}},
        by_step=SimpleNamespace(facts={"period_ns": int(period_ms * 1e6)}),
        summary={"latency_ms": {"median": clean_ms}} if clean_ms else {},
    )


def two_gpus(compute_ms: float, late_ms: float) -> tuple[list[Any], list[Any]]:
    """Return ranks and five steps of which rank 1 is `late_ms` late in each."""
    steps = [
        {"step": i, "straggler": 1, "waited_ns": int(late_ms * 1e6), "cause": "host", "where": "x"}
        for i in range(5)
    ]
    ranks = [
        {"rank": r, "span_ns": 400_000_000, "idle_ns": 0, "exposed_ns": 100_000_000,
         "exposed_frac": 0.25, "compute_ns": int(compute_ms * 5e6),
         "communication_ns": 180_000_000, "late_ns": r * int(late_ms * 5e6), "wait_ns": 1}
        for r in (0, 1)
    ]  # fmt: skip
    return ranks, steps


def test_a_rank_that_only_the_profiler_makes_late_is_not_named() -> None:
    """Measured: nsys made a step of 46 ms one of 77; 39.6 of 46 ms are compute on both GPUs."""
    view = made_view(*two_gpus(39.6, 49.8), period_ms=77, clean_ms=45.9)

    limit = rank_limit(view)

    assert limit is None  # nor do the 25 % of exposed communication fit into the clean pass
    filled = filled_by_compute(view)
    assert filled is not None
    assert filled.headline == (
        "Compute fills 86 % of an iteration of 45.9 ms: at most 14 % is exposed communication or "
        "waiting"
    )


def test_ranks_that_wait_much_of_a_clean_iteration_are_not_called_filled_by_compute() -> None:
    assert filled_by_compute(made_view(*two_gpus(20, 1.0), period_ms=50, clean_ms=45.9)) is None
    assert filled_by_compute(made_view(*two_gpus(39.6, 1.0), period_ms=50)) is None


def test_a_late_rank_is_named_as_far_as_the_clean_pass_has_room_for_it() -> None:
    """Measured with a planted straggler that sleeps 12 ms and waits for its GPU before."""
    view = made_view(*two_gpus(37.0, 38.7), period_ms=82.7, clean_ms=66.3)

    limit = rank_limit(view)

    assert limit is not None
    assert limit.headline == "Rank 1 is late by up to 29.3 ms a step, in x"
    assert (
        "clean pass: an iteration of 66.3 ms holds 37 ms of compute, so others can wait for 29.3 ms"
        in limit.evidence
    )


def test_exposed_communication_is_no_more_than_the_clean_pass_has_room_for() -> None:
    ranks, steps = two_gpus(40.0, 0.0)

    free = rank_limit(made_view(ranks, steps, period_ms=80, clean_ms=60))
    cut = rank_limit(made_view(ranks, steps, period_ms=80, clean_ms=50))

    assert free is not None and cut is not None
    assert free.headline == "Communication-bound: 25 % of the step is exposed all-reduce"
    assert cut.headline == "Communication-bound: up to 20 % of the step is exposed all-reduce"
    assert rank_limit(made_view(ranks, steps, period_ms=80, clean_ms=46)) is None


def test_exposed_sends_and_receives_are_a_pipelines_bubbles_not_a_buckets() -> None:
    view = made_view(*two_gpus(40.0, 0.0), period_ms=80)
    view.ranks["exposed_by_kind"] = {"send_recv": 1.0}

    limit = rank_limit(view)

    assert limit is not None
    assert limit.headline == "Communication-bound: 25 % of the step is exposed send and receive"
    assert "micro-batches" in limit.next_steps[0]
    assert "bucket" not in " ".join(limit.next_steps)


def test_the_late_rank_is_among_the_worst_of_many() -> None:
    def tab() -> None:
        import pandas as pd

        from app.ui.run.ranks import _bars

        rows = pd.DataFrame({"rank": range(64), "span_ns": 100, "compute_ns": 50})
        rows = rows.assign(exposed_ns=30, idle_ns=20, late_ns=0)
        rows.loc[40, ["exposed_ns", "idle_ns", "late_ns"]] = (5, 45, 25)
        _bars(rows)

    at = AppTest.from_function(tab, default_timeout=60).run()

    assert not at.exception
    assert "The latest rank, and the 9 ranks with the most exposed" in at.markdown[1].value
    worst = at.get("plotly_chart")[1].proto.spec
    assert "rank 40" in worst


def test_a_rank_that_entered_the_recording_late_is_not_the_one_that_is_late() -> None:
    """Waits of a real two-GPU job with a planted straggler (rank 1), ms: the first misleads."""
    waits = [(0, 111), (0, 39), (1, 23), (1, 49), (1, 82)]
    steps = [
        {
            "step": i,
            "straggler": rank,
            "waited_ns": ms * 1_000_000,
            "cause": "host",
            "where": "load",
        }
        for i, (rank, ms) in enumerate(waits)
    ]
    ranks = [
        {"rank": r, "span_ns": 430_000_000, "idle_ns": 130_000_000, "exposed_ns": 117_000_000,
         "communication_ns": 182_000_000, "late_ns": late, "wait_ns": 150_000_000}
        for r, late in enumerate((150_000_000, 154_000_000))
    ]  # fmt: skip

    limit = rank_limit(made_view(ranks, steps, period_ms=80))

    assert limit is not None
    assert limit.headline == "Rank 1 is late by 38.5 ms a step, in load"


def test_verdict_names_the_exposed_collective() -> None:
    ranks = [
        {"rank": r, "span_ns": 1000, "idle_ns": 90, "exposed_ns": 310, "exposed_frac": 0.31,
         "communication_ns": 400, "late_ns": 5, "wait_ns": 20}
        for r in range(2)
    ]  # fmt: skip
    document = {"ranks": ranks, "exposed_by_kind": {"all_reduce": 0.31}, "steps": [{"step": 0}]}

    limit = rank_limit(
        SimpleNamespace(ranks=document, by_step=SimpleNamespace(facts={}), summary={})
    )

    assert limit is not None
    assert limit.headline == "Communication-bound: 31 % of the step is exposed all-reduce"


def test_a_timeline_of_many_ranks_shows_the_last_and_the_longest_waiting_first() -> None:
    rows = [{"rank": r, "late_ns": r, "wait_ns": 63 - r} for r in range(64)]

    assert telling_ranks(rows) == [0, 1, 2, 3, 60, 61, 62, 63]
    assert telling_ranks(rows[:3]) == [0, 1, 2]
    assert len(telling_ranks(rows)) == FEW

"""One latency and one memory figure of a run, wherever it is shown: over all example runs."""

import dataclasses
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.compare.engine import compare
from analysis.compare.metrics import Metric, side_groups
from analysis.compare.statistics import centre
from analysis.runview import RunView
from analysis.studies import list_studies, run_study
from analysis.studies.engine.measures import LATENCY_STATISTICS
from app.show import show_document
from app.ui.format import bytes_, duration, percent
from app.ui.run.cards import run_cards
from app.ui.run.memory import sample_facts
from core.config import DataDir
from db.connection import open_read_only
from db.fetch import NOT_IN_A_STUDY, run_view, run_views
from db.runs import list_rows

MEMORY = {
    "peak_memory": "peak_memory_bytes",
    "requested_memory": "requested_bytes",
    "reserved_memory": "reserved_bytes",
    "driver_memory": "driver_bytes",
}
IN_STUDIES = {
    "peak_memory": "peak_memory_bytes",
    "memory_allocated": "allocated_bytes",
    "memory_reserved": "reserved_bytes",
}


@pytest.fixture(scope="module")
def views(example_data: Path) -> dict[str, RunView]:
    data = DataDir(root=example_data)
    db = open_read_only(data.db_path)
    ids = [r[0] for r in db.execute("SELECT id FROM runs").fetchall()]
    return dict(zip(ids, run_views(db, data, ids), strict=True))


@pytest.fixture(scope="module")
def documents(views: dict[str, RunView], one_of_a_kind: set[str]) -> dict[str, dict[str, Any]]:
    """What `show --json` prints of one run of each kind."""
    return {run_id: show_document(views[run_id]) for run_id in one_of_a_kind}


@pytest.fixture(scope="module")
def one_of_a_kind(views: dict[str, RunView]) -> set[str]:
    """One run of each set of passes and of sources of its memory, with latencies and without.

    A whole comparison and a document look at kernels too, which no figure here is made of; the
    side of a comparison that holds the figure is looked at for every run.
    """
    kinds = {}
    for run_id, view in views.items():
        sources = sorted((view.summary.get("memory_sources") or {}).items())
        kinds[str(sources), len(view.samples) > 0, view.run.profilers] = run_id
    return set(kinds.values())


@pytest.fixture(scope="module")
def samples_ms(example_data: Path) -> Mapping[str, np.ndarray]:
    """The clean samples of each run, read by themselves."""
    with sqlite3.connect(f"file:{example_data}/warpboard.db?mode=ro", uri=True) as db:
        rows = db.execute("SELECT run_id, latency_ns FROM samples WHERE pass = 'clean'").fetchall()
    found: dict[str, list[float]] = {}
    for run_id, ns in rows:
        found.setdefault(run_id, []).append(ns / 1e6)
    return {run_id: np.array(values) for run_id, values in found.items()}


def test_a_latency_is_the_median_of_its_samples_on_card_list_json_and_comparison(
    example_data: Path,
    views: dict[str, RunView],
    documents: dict[str, dict[str, Any]],
    one_of_a_kind: set[str],
    samples_ms: Mapping[str, np.ndarray],
) -> None:
    listed = {
        row["id"]: row
        for row in list_rows(open_read_only(example_data / "warpboard.db"), limit=999)
    }
    assert len(samples_ms) > 100

    for run_id, values in samples_ms.items():
        view, median = views[run_id], float(np.median(values))
        assert view.summary["latency_ms"]["median"] == pytest.approx(median), view.run.name
        assert listed[run_id]["latency_ms"] == pytest.approx(median)
        assert _card(view, "Latency") == duration(view.summary["latency_ms"]["median"] * 1e6)
        assert _side(view, "latency") == pytest.approx(median)
        if run_id in one_of_a_kind:
            shown = documents[run_id]
            assert shown["summary"]["latency_ms"]["median"] == pytest.approx(median)
            each = [row["latency_ns"] / 1e6 for row in shown["samples"]]
            assert np.median(each) == pytest.approx(median)
            compared = compare([view], [view])
            assert compared.a.median == pytest.approx(median)
            assert compared.ratio == 1


def test_a_memory_figure_is_one_on_card_list_json_and_comparison_and_holds_the_smaller(
    example_data: Path, views: dict[str, RunView], one_of_a_kind: set[str]
) -> None:
    listed = {
        row["id"]: row
        for row in list_rows(open_read_only(example_data / "warpboard.db"), limit=999)
    }
    num = 0
    for run_id, view in views.items():
        summary = view.summary
        peak = summary.get("peak_memory_bytes")
        if peak is None:
            assert _card(view, "Peak memory") == "\u2014"
            continue
        num += 1
        assert listed[run_id]["peak_memory_bytes"] == peak
        assert _card(view, "Peak memory") == bytes_(peak)
        for metric, key in MEMORY.items():
            if key in summary:
                assert _side(view, metric) == summary[key]
                if run_id in one_of_a_kind:
                    assert compare([view], [view], metric=metric).a.median == summary[key]
                assert key in summary["memory_sources"]
        order = [summary[k] for k in _INSIDE_OUT if k in summary]
        assert order == sorted(order), view.run.name
        if (
            len(view.memory_points)
            and summary["memory_sources"].get("allocated_bytes") == "snapshot"
        ):
            assert view.memory_points["allocated_bytes"].max() == summary["allocated_bytes"]
    assert num > 90


_INSIDE_OUT = ("requested_bytes", "allocated_bytes", "reserved_bytes", "driver_bytes")


def _card(view: RunView, label: str) -> str:
    return next(card.value for card in run_cards(view) if card.label == label)


def _side(view: RunView, metric: str) -> float:
    """Return the figure that a comparison with this run as a side holds of it."""
    unit = "ms" if metric == "latency" else "bytes"
    return centre(side_groups([view], Metric(name=metric, unit=unit), per="capture")[0])


def test_every_latency_and_memory_cell_of_a_study_is_the_runs_own(
    example_data: Path, views: dict[str, RunView], samples_ms: Mapping[str, np.ndarray]
) -> None:
    data = DataDir(root=example_data)
    db = open_read_only(data.db_path)
    short = run_views(db, data, list(views), leave_out=NOT_IN_A_STUDY)

    num = {"latency": 0, "memory": 0}
    for measure, ids, value in _cells(short):
        if LATENCY_STATISTICS.get(measure) == "median" and all(i in samples_ms for i in ids):
            pooled = np.concatenate([samples_ms[i] for i in ids])
            assert value == pytest.approx(float(np.median(pooled)))
            num["latency"] += 1
        elif measure in IN_STUDIES:
            known = [views[i].summary.get(IN_STUDIES[measure]) for i in ids]
            assert value == pytest.approx(np.median([b for b in known if b is not None]) / 1e9)
            num["memory"] += 1
    assert min(num.values()) > 100


def test_runs_that_are_read_together_are_as_each_read_alone(
    example_data: Path, views: dict[str, RunView], one_of_a_kind: set[str]
) -> None:
    data = DataDir(root=example_data)
    db = open_read_only(data.db_path)

    num_rows = 0
    for run_id in one_of_a_kind:
        one, alone = views[run_id], run_view(db, data, run_id)
        for field in dataclasses.fields(RunView):
            a, b = getattr(one, field.name), getattr(alone, field.name)
            if isinstance(a, pd.DataFrame):
                assert a.equals(b), (one.run.name, field.name)
                num_rows += len(a)
            elif field.name != "by_step":
                assert a == b
        assert one.by_step.kernels.equals(alone.by_step.kernels), one.run.name
    assert num_rows > 10_000


def _cells(views: list[RunView]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield (measure, runs, value) of every cell of ours that was measured and is not a ratio."""
    asked = {m for m, what in LATENCY_STATISTICS.items() if what == "median"} | {*IN_STUDIES}
    for study in list_studies():
        if not asked & {value.measure for table in study.tables for value in table.values}:
            continue
        frame = run_study(study.name, views).frame
        for table in study.tables:
            for value in (v for v in table.values if not v.relative_to):
                is_here = (frame["table"] == table.title) & (frame["value_key"] == value.key)
                rows = frame[is_here & (frame["from"] == "measured") & (frame["status"] == "ok")]
                for row in rows.itertuples():
                    yield value.measure, tuple(row.run_ids), float(row.value)


def test_the_table_of_samples_has_the_statistics_of_the_samples(
    views: dict[str, RunView], samples_ms: Mapping[str, np.ndarray]
) -> None:
    for run_id, values in samples_ms.items():
        shown = dict(sample_facts(views[run_id]))
        expected = {
            "median": np.median(values),
            "mean": values.mean(),
            "min": values.min(),
            "max": values.max(),
            "p95": np.percentile(values, 95),
        }
        if len(values) > 1:
            expected["std"] = values.std(ddof=1)
            share = percent(float(values.std(ddof=1) / values.mean()))
            assert shown["coefficient of variation"] == share
        for name, value in expected.items():
            assert shown[name] == duration(float(value) * 1e6), views[run_id].run.name
        assert shown["samples"] == str(len(values))


def test_the_json_of_a_run_has_no_second_latency(documents: dict[str, dict[str, Any]]) -> None:
    """Every `latency` in the document is that of the summary, or of one process or sample."""
    for made in documents.values():
        document: dict[str, Any] = json.loads(json.dumps(made, default=str))
        median = (document["summary"].get("latency_ms") or {}).get("median")
        for metric in document["metrics"]:
            if metric["name"] == "latency_ms" and not metric.get("phase"):
                assert metric["value"] == pytest.approx(median)

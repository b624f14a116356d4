"""Experiments of stored runs: prediction beside outcome, what is kept when tried, the score."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from analysis.advice import experiments
from analysis.advice.models import Estimate
from analysis.advice.settings import Setting
from app import advice, score
from app.imports import import_paths
from app.submit import ANY_CPU
from core.config import DataDir
from core.errors import UserError
from db.connection import opened
from db.predictions import keep_prediction, tried

GRAPH = "compile=reduce-overhead"


@pytest.fixture(scope="module")
def stored(
    tmp_path_factory: pytest.TempPathFactory, example_captures: Path
) -> Iterator[dict[str, Any]]:
    """A decode step as it is, and compiled with CUDA graphs, both measured on one GPU."""
    data = DataDir(root=tmp_path_factory.mktemp("advice")).ensure()
    made: dict[str, Any] = {"data": data}
    for name in ("decode_eager", "decode_reduce_overhead"):
        made[name] = import_paths(data, [example_captures / "h200" / name], name=name).run_id
    made["reduced"] = example_captures / "h200" / "decode_reduce_overhead"
    yield made


@pytest.fixture
def db(stored: dict[str, Any]) -> Iterator[Database]:
    with opened(stored["data"].db_path) as found:
        with found.atomic():
            found.conn.execute("DELETE FROM predictions")
        yield found


def named(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(e for e in document["experiments"] if e["name"] == name)


def clean_median_ms(bundle: Path) -> float:
    manifest = json.loads((bundle / "manifest.json").read_text())
    samples = sorted(
        x for p in manifest["passes"] if p["pass"] == "clean" for x in p["result"]["samples_ns"]
    )
    middle = len(samples) // 2
    both = samples[middle] if len(samples) % 2 else (samples[middle - 1] + samples[middle]) / 2
    return float(both) / 1e6


def test_a_prediction_stands_beside_what_the_changed_job_took(
    stored: dict[str, Any], db: Database
) -> None:
    found = named(advice.advice_of(db, stored["data"], stored["decode_eager"]), GRAPH)

    measured_ms = found["measured"]["latency_ms"]
    assert measured_ms == pytest.approx(clean_median_ms(stored["reduced"]), rel=1e-3)
    assert found["predicted_ms"]["low"] < measured_ms < found["predicted_ms"]["high"]
    assert found["measured"]["is_inside"]


def test_a_gain_within_what_runs_differ_by_is_not_worth_a_run(
    stored: dict[str, Any], db: Database
) -> None:
    document = advice.advice_of(db, stored["data"], stored["decode_eager"])

    for found in document["experiments"]:
        times = found["params"].get("batch", 1)
        gain = 1 - found["predicted_ms"]["median"] / times / document["latency_ms"]
        assert found["is_worth_a_run"] == (gain >= 0.03)


def test_a_tried_prediction_is_kept_as_it_was_made(stored: dict[str, Any], db: Database) -> None:
    keep(db, stored, predicted_ns=1e6)

    found = named(advice.advice_of(db, stored["data"], stored["decode_eager"]), GRAPH)["tried"]

    measured_ms = clean_median_ms(stored["reduced"])
    assert found["predicted_ms"]["median"] == 1.0
    assert found["model_version"] == 7
    assert found["error_frac"] == pytest.approx(1 / measured_ms - 1, rel=1e-3)
    assert found["is_inside"] is False


def test_kinds_that_were_missed_are_not_offered_and_say_so(
    stored: dict[str, Any], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "shipped_outcomes", list)
    for predicted_ns in (1e6, 2e6):
        keep(db, stored, predicted_ns=predicted_ns)

    found = named(advice.advice_of(db, stored["data"], stored["decode_eager"]), GRAPH)

    assert found["status"] == "withheld"
    assert "poor" in found["note"]


def test_the_score_counts_a_pair_once_tried_or_not(stored: dict[str, Any], db: Database) -> None:
    before = score.score_document(db, stored["data"])
    keep(db, stored, predicted_ns=1e6)
    after = score.score_document(db, stored["data"])

    assert [p["experiment"] for p in before["pairs"]] == [GRAPH]
    assert [(p["experiment"], p["predicted_ns"]) for p in after["pairs"]] == [(GRAPH, 1e6)]


def test_an_experiment_that_is_not_there_is_refused_with_those_that_are(
    stored: dict[str, Any], db: Database
) -> None:
    with pytest.raises(UserError, match="compile=reduce-overhead"):
        advice.try_experiments(db, stored["data"], stored["decode_eager"], ["faster"])


def test_nothing_is_kept_where_no_worker_has_the_gpu(stored: dict[str, Any], db: Database) -> None:
    with pytest.raises(UserError, match="H200"):
        advice.try_experiments(db, stored["data"], stored["decode_eager"], [GRAPH])

    assert tried(db) == []


def test_what_is_tried_is_queued_with_repeats_and_kept_as_predicted(
    stored: dict[str, Any], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "_target", lambda *_: ANY_CPU)
    said = named(advice.advice_of(db, stored["data"], stored["decode_eager"]), GRAPH)

    [(_, queued)] = advice.try_experiments(db, stored["data"], stored["decode_eager"], [GRAPH])

    row = db.execute("SELECT status, params, repeats FROM runs WHERE id = ?", [queued]).fetchone()
    before = db.execute("SELECT params FROM runs WHERE id = ?", [stored["decode_eager"]]).fetchone()
    expected = json.loads(before[0]) | {"compile": "reduce-overhead"}
    assert row[0] == "queued"
    assert {k: json.loads(row[1])[k] for k in expected} == expected
    assert row[2] >= 3
    [kept] = tried(db)
    assert kept.predicted_ns / 1e6 == pytest.approx(said["predicted_ms"]["median"])
    assert (kept.outcome_run_id, kept.measured_ms) == (queued, None)


def test_a_setting_of_an_own_program_comes_with_the_command_that_tries_it(
    stored: dict[str, Any], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = Setting(
        name="segments", title="Growing segments", environment={"ALLOCATOR": "grows"}, lines=(),
        estimate=Estimate(latency_ns=1e6, host_decides=False, evidence=("It allocates.",)),
    )  # fmt: skip
    monkeypatch.setattr(experiments, "settings_for", lambda *_, **__: [growing])
    run_id = stored["decode_eager"]
    before = db.conn.execute("SELECT workload, params FROM runs WHERE id = ?", [run_id]).fetchone()
    own = ("command", json.dumps({"argv": json.dumps(["python3", "serve.py"])}))
    update = "UPDATE runs SET workload = ?, params = ? WHERE id = ?"
    db.conn.execute(update, [*own, run_id])
    try:
        document = advice.advice_of(db, stored["data"], run_id)
    finally:
        db.conn.execute(update, [*before, run_id])

    command = named(document, "segments")["command"]
    assert command.startswith("ALLOCATOR=grows ./warpboard profile ")
    assert command.endswith(" -- python3 serve.py")


def keep(db: Database, stored: dict[str, Any], *, predicted_ns: float) -> None:
    keep_prediction(
        db,
        run_id=stored["decode_eager"],
        outcome_run_id=stored["decode_reduce_overhead"],
        experiment=GRAPH,
        kind="compile_graph",
        model_version=7,
        predicted_ns=predicted_ns,
        low_ns=0.9 * predicted_ns,
        high_ns=1.1 * predicted_ns,
    )

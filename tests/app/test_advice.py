"""Experiments of stored runs: prediction beside outcome, what is kept when tried, the score."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database
from streamlit.testing.v1 import AppTest

from analysis.advice import experiments
from analysis.advice.models import Estimate
from analysis.advice.settings import Setting
from app import advice, score
from app.imports import import_paths
from app.submit import ANY_CPU
from core.config import DataDir
from core.errors import UserError
from core.spec import JobSpec
from db.connection import opened
from db.fetch import run_view
from db.predictions import keep_prediction, tried
from db.workers import register_worker
from tests.app.test_pages import open_page, texts
from workloads.registry import parse_params

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


def test_what_the_host_did_while_the_gpu_idled_reaches_the_models(
    stored: dict[str, Any], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    update = "UPDATE runs SET workload = ? WHERE id = ?"
    with db.atomic():
        db.conn.execute(update, ["command", stored["decode_eager"]])
    monkeypatch.setattr(experiments, "settings_for", lambda *given: seen.append(given) or [])

    advice.advice_of(db, stored["data"], stored["decode_eager"])

    with db.atomic():
        db.conn.execute(update, ["decode", stored["decode_eager"]])
    [(_, program, _)] = seen
    expected = run_view(db, stored["data"], stored["decode_eager"]).by_step.idle_host
    assert len(expected) > 0
    assert program.idle_host.equals(expected)


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


OWN = {"argv": json.dumps(["/opt/app/serve", "--port", "1"])}
EAGER = "CUDA_MODULE_LOADING=EAGER"


@pytest.fixture
def own(
    stored: dict[str, Any], db: Database, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """The two stored runs as those of an own program, without and with the setting on offer."""
    settings = [
        Setting(name="loading", kind="setting", title="Load at the start", lines=(),
                environment={"CUDA_MODULE_LOADING": "EAGER"},
                estimate=Estimate(latency_ns=1e6, host_decides=False, evidence=("It loads.",))),
        Setting(name="pinned", kind="setting", title="Pinned memory", lines=("pin_memory=True",),
                environment={},
                estimate=Estimate(latency_ns=1e6, host_decides=False, evidence=("It copies.",))),
    ]  # fmt: skip
    monkeypatch.setattr(experiments, "settings_for", lambda *_, **__: settings)
    monkeypatch.setattr(advice, "shipped_outcomes", list)
    ids = (stored["decode_eager"], stored["decode_reduce_overhead"])
    columns = "workload, params, comparable_hash"
    update = "UPDATE runs SET workload = ?, params = ?, comparable_hash = ? WHERE id = ?"
    before = [
        db.conn.execute(f"SELECT {columns}, id FROM runs WHERE id = ?", [i]).fetchone() for i in ids
    ]
    with db.atomic():
        for run_id, params in zip(ids, (OWN, OWN | {"settings": EAGER}), strict=True):
            full = parse_params("command", params)
            digest = JobSpec(workload="command", params=full).comparable_hash
            db.conn.execute(update, ["command", json.dumps(full), digest, run_id])
    yield ids
    with db.atomic():
        db.conn.execute("DELETE FROM gpus")
        db.conn.execute("DELETE FROM workers")
        for row in before:
            db.conn.execute(update, [*row])


def host(db: Database, allowed: list[str]) -> None:
    info = {"host_label": "node1", "permissions": {"commands": allowed}}
    (model,) = db.execute("SELECT DISTINCT gpu_model FROM runs WHERE gpu_model != 'cpu'").fetchone()
    gpus = [{"model": model, "uuid": "GPU-0", "ordinal": 0}]
    register_worker(db, "w1", version="0.1.0", queues=[], gpus=gpus, info=info)


def test_a_setting_of_an_own_program_comes_with_the_command_that_tries_it(
    stored: dict[str, Any], db: Database, own: tuple[str, str]
) -> None:
    command = named(advice.advice_of(db, stored["data"], own[0]), "loading")["command"]

    assert command.startswith(f"{EAGER} ./warpboard profile ")
    assert command.endswith(" -- /opt/app/serve --port 1")


def test_a_setting_that_the_run_had_is_not_offered(
    stored: dict[str, Any], db: Database, own: tuple[str, str]
) -> None:
    names = [e["name"] for e in advice.advice_of(db, stored["data"], own[1])["experiments"]]

    assert names == ["pinned"]


def test_a_setting_is_queued_on_the_host_that_allows_the_program_and_scored(
    stored: dict[str, Any], db: Database, own: tuple[str, str]
) -> None:
    host(db, ["/opt/app/"])
    assert advice.advice_of(db, stored["data"], own[0])["not_tried"] is None

    [(_, queued)] = advice.try_experiments(db, stored["data"], own[0], ["all"])

    query = "SELECT name, params, repeats, status FROM runs WHERE id = ?"
    name, params, repeats, status = db.execute(query, [queued]).fetchone()
    assert json.loads(params)["settings"] == EAGER
    assert json.loads(params)["argv"] == OWN["argv"]
    assert (name.endswith(f": {EAGER}"), repeats >= 3, status) == (True, True, "queued")
    [kept] = tried(db)
    assert (kept.kind, kept.experiment, kept.outcome_run_id) == ("setting", "loading", queued)


@pytest.mark.parametrize(
    ("allowed", "reason"), [([], "off"), (["/opt/other/"], "WARPBOARD_ALLOW_COMMANDS")]
)
def test_a_program_that_no_host_allows_is_refused_with_the_reason(
    stored: dict[str, Any], db: Database, own: tuple[str, str], allowed: list[str], reason: str
) -> None:
    host(db, allowed)

    with pytest.raises(UserError, match=f"{reason}.*type the command"):
        advice.try_experiments(db, stored["data"], own[0], ["loading"])

    assert reason in advice.advice_of(db, stored["data"], own[0])["not_tried"]
    assert tried(db) == []


def test_lines_of_a_program_are_no_job(
    stored: dict[str, Any], db: Database, own: tuple[str, str]
) -> None:
    host(db, ["/opt/app/"])

    with pytest.raises(UserError, match="no job can make"):
        advice.try_experiments(db, stored["data"], own[0], ["pinned"])


def test_an_experiment_whose_kind_was_measured_once_says_so(
    stored: dict[str, Any], db: Database, own: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = score.Outcome(
        kind="setting", experiment="loading", gpu_model="a GPU", base="a run", predicted_ns=110.0,
        low_ns=90.0, high_ns=130.0, measured_ns=100.0, base_ns=300.0, model_version=1,
    )  # fmt: skip
    monkeypatch.setattr(advice, "shipped_outcomes", lambda: [once])

    found = named(advice.advice_of(db, stored["data"], own[0]), "loading")

    assert found["status"] == "untried"
    assert found["note"].startswith("one prediction of this kind was measured, 10 % off")


def test_two_runs_that_differ_in_a_setting_are_a_pair_of_the_score(
    stored: dict[str, Any], db: Database, own: tuple[str, str]
) -> None:
    found = score.score_document(db, stored["data"])

    [pair] = found["pairs"]
    assert (pair["kind"], pair["experiment"]) == ("setting", "loading")
    assert pair["measured_ns"] / 1e6 == pytest.approx(clean_median_ms(stored["reduced"]), rel=1e-3)
    assert found["overall"] == {
        "num_pairs": 1,
        "num_inside": int(pair["is_inside"]),
        "inside_frac": float(pair["is_inside"]),
        "median_error_frac": abs(pair["error_frac"]),
    }


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


def test_the_page_tries_a_setting_where_a_host_allows_the_program_and_else_says_why(
    stored: dict[str, Any], db: Database, own: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened_page() -> AppTest:
        root = str(stored["data"].root)
        return open_page(monkeypatch, root, "run", run_id=own[0], tab="Advice")

    with db.atomic():  # nobody has measured the setting
        db.conn.execute("UPDATE runs SET comparable_hash = NULL WHERE id = ?", [own[1]])
    host(db, [])
    at = opened_page()
    assert "own programs are off" in texts(at)
    assert not [b for b in at.button if b.label == "Try it"]

    host(db, ["/opt/app/"])
    at = opened_page()
    [button] = [b for b in at.button if b.label == "Try it"]
    button.click().run()

    [kept] = tried(db)
    assert (kept.experiment, kept.status) == ("loading", "queued")

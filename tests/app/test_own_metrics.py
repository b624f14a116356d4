"""Numbers that a program prints: kept by process, shown, listed and compared like latency."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.studies.engine.measures import measure_of
from core.config import DataDir
from db.connection import opened
from db.fetch import run_view
from tests.app.conftest import Cli


def store(cli: Cli, folder: Path, name: str, rates: Sequence[float], *, better: str = "") -> None:
    """Import a run of one clean process a rate: no steps, what it printed, and its whole time."""
    folder.mkdir(parents=True)
    passes = []
    for process, rate in enumerate(rates):
        printed = {"name": "tok/s", "value": rate, "unit": ""}
        whole = {"name": "program_time", "value": 1000 / rate, "unit": "s"}
        result = {
            "samples_ns": [],
            "metrics": [printed | ({"better": better} if better else {}), whole],
            "warnings": [{"code": "no_steps_seen", "message": "No steps were seen"}],
        }
        passes.append(
            {"pass": "clean", "process": process, "status": "ok", "captures": [], "warnings": [],
             "result": result}
        )  # fmt: skip
    job = {"schema_version": 1, "workload": "command",
           "params": {"argv": '["prog"]', "name": name}, "profilers": [],
           "repeats": len(rates), "gpu": "NVIDIA H200"}  # fmt: skip
    manifest = {"schema_version": 1, "status": "done", "job": job, "passes": passes,
                "gpu": {"model": "NVIDIA H200"}}  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert cli("import", "--name", name, str(folder)) == 0, cli.err


SLOW = (100.0, 101.0, 99.5, 100.5, 100.2)
FAST = (120.0, 121.0, 119.5, 120.5, 120.2)


def compared(cli: Cli, a: str, b: str, metric: str) -> dict[str, object]:
    return dict(cli.json("compare", a, b, "--metric", metric))


@pytest.mark.parametrize(
    ("better", "verdict"), [("", "faster"), ("higher", "faster"), ("lower", "slower")]
)
def test_printed_rate_is_compared_by_its_processes_in_the_direction_that_is_named(
    cli: Cli, tmp_path: Path, better: str, verdict: str
) -> None:
    store(cli, tmp_path / "a", "a", SLOW, better=better)
    store(cli, tmp_path / "b", "b", FAST, better=better)

    found = compared(cli, "a", "b", "tok/s")

    assert found["verdict"] == verdict
    assert found["higher_is_better"] == (verdict == "faster")
    assert found["ratio"] == pytest.approx(1.2, rel=0.01)


def test_difference_of_a_printed_number_within_the_noise_is_none(cli: Cli, tmp_path: Path) -> None:
    store(cli, tmp_path / "a", "a", SLOW)
    store(cli, tmp_path / "b", "b", [rate * 1.002 for rate in SLOW])

    assert compared(cli, "a", "b", "tok/s")["verdict"] == "no_difference"


def test_one_process_a_side_is_no_verdict_on_a_printed_number(cli: Cli, tmp_path: Path) -> None:
    store(cli, tmp_path / "a", "a", SLOW[:1])
    store(cli, tmp_path / "b", "b", FAST[:1])

    assert compared(cli, "a", "b", "tok/s")["verdict"] == "not_enough_samples"


def test_whole_program_is_compared_as_a_time_and_is_no_latency(cli: Cli, tmp_path: Path) -> None:
    store(cli, tmp_path / "a", "a", SLOW)
    store(cli, tmp_path / "b", "b", FAST)

    found = compared(cli, "a", "b", "program_time")

    assert (found["verdict"], found["unit"]) == ("faster", "s")
    assert "latency_ms" not in cli.json("show", "a")["summary"]


def test_printed_numbers_are_shown_with_a_run_and_in_the_list(cli: Cli, tmp_path: Path) -> None:
    store(cli, tmp_path / "a", "a", SLOW, better="higher")

    document = cli.json("show", "a")
    [listed] = cli.json("runs", "--metric", "tok/s")["runs"]
    assert cli("show", "a") == 0
    shown = cli.out
    assert cli("runs", "--metric", "tok/s") == 0
    table = cli.out

    assert "tok/s 100.24 (clean pass, mean of 5 processes)" in shown
    [stored] = [m for m in document["metrics"] if m["name"] == "tok/s"]
    assert (stored["process_values"], stored["better"]) == (list(SLOW), "higher")
    assert listed["metrics"] == {"tok/s": pytest.approx(100.24)}
    assert "tok/s" in table
    assert "100.2" in table


def test_studies_read_a_printed_number_by_its_name(
    cli: Cli, data_dir: DataDir, tmp_path: Path
) -> None:
    store(cli, tmp_path / "a", "a", SLOW)
    [listed] = cli.json("runs")["runs"]
    with opened(data_dir.db_path) as db:
        view = run_view(db, data_dir, listed["id"])

    [reading] = measure_of("metric:tok/s")(view)

    assert reading.value == pytest.approx(sum(SLOW) / 5)
    assert list(measure_of("metric:never printed")(view)) == []

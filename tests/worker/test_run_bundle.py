"""`python -m worker.run_bundle`: bundles without broker or database."""

import json
from pathlib import Path

import pytest

from worker.run_bundle import main
from worker.targets import find_targets, measured_key, measured_path

GPU = ("--gpu", "0")


@pytest.fixture(autouse=True)
def _host(gpu_host: None, fake_python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPBOARD_PYTHON", fake_python)


def test_one_job_leaves_its_bundle_in_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["decode", *GPU, "--profilers", "nsys", "--out", str(tmp_path / "b"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    assert json.loads((tmp_path / "b" / "manifest.json").read_text())["status"] == "done"
    assert answer["runs"][0]["outcomes"] == {"clean-0": "ok", "nsys-0": "ok"}
    assert answer["runs"][0]["latency_ms"]["median"] == pytest.approx(2.3100055)


def test_interleaved_sweep_takes_turns_and_ends_with_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sweep"
    settings = ["--set", "batch=1,2", "--repeats", "2", "--interleave"]
    assert main(["decode", *GPU, *settings, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    head, *rows = said.err.split("\n\n")[-1].splitlines()
    assert head.split()[:4] == ["status", "batch", "median", "ms"]
    assert [row.split()[:2] for row in rows] == [["done", "1"], ["done", "2"]]
    bundles = sorted(out.iterdir())
    assert [b.name for b in bundles] == ["00_decode_batch-1", "01_decode_batch-2"]
    manifests = [json.loads((b / "manifest.json").read_text()) for b in bundles]
    assert [[p["order"] for p in m["passes"]] for m in manifests] == [[0, 2], [1, 3]]
    starts = sorted((p["started_at"], p["order"]) for m in manifests for p in m["passes"])
    assert [order for _, order in starts] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["decode", "--set", "bacth=1"], "bacth"),
        (["decode", "--set", "batch=many"], "batch=many"),
        (["decode", "--set", "batch"], "NAME=VALUE"),
        (["decod"], "decode"),
        (["decode", "--profilers", "nsight"], "nsight"),
        (["decode", "--repeats", "0"], "repeats"),
        (["decode", "--gpu", "RTX 9999"], "RTX 9999"),
    ],
)
def test_wrong_input_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main([*arguments, "--out", str(tmp_path / "b")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_full_folder_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["decode", "--out", str(tmp_path)]) == 2
    assert "not an empty folder" in capsys.readouterr().err


def test_failed_job_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARPBOARD_PYTHON", "/bin/false")
    assert main(["decode", "--out", str(tmp_path / "b")]) == 3
    assert "failed" in capsys.readouterr().err


def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put peaks where `worker.measure --save` leaves those of the stand-in GPU."""
    monkeypatch.setenv("WARPBOARD_DATA", str(tmp_path / "data"))
    _, target = find_targets("0")[0]
    path = measured_path(measured_key(target))
    path.parent.mkdir(parents=True)
    peak = {"value": 2.6e12, "unit": "B/s", "measured_at": "2026-11-01T00:00:00Z"}
    floors = {"gpu_bound": 0.005, "launch_bound": 0.01}
    facts = {"peaks": {"copy_bytes_per_s": peak}, "noise_floor_frac": 0.01, "noise_floors": floors}
    path.write_text(json.dumps(facts | {"measured_at": "2026-11-01T00:00:00Z"}))


def test_bundle_carries_the_measured_peaks_and_import_stores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.imports import import_paths
    from core.config import DataDir
    from db.connection import opened
    from db.fetch import run_view

    measured(tmp_path, monkeypatch)
    assert main(["decode", *GPU, "--out", str(tmp_path / "b")]) == 0
    data = DataDir(root=tmp_path / "elsewhere").ensure()
    run_id = import_paths(data, [tmp_path / "b"]).run_id
    with opened(data.db_path) as db:
        peaks = db.execute("SELECT name, value, measured_at FROM gpu_peaks").fetchall()
        view = run_view(db, data, run_id)
    assert peaks == [("copy_bytes_per_s", 2.6e12, "2026-11-01T00:00:00Z")]
    assert (view.peaks, view.noise_floor_frac) == ({"copy_bytes_per_s": 2.6e12}, 0.01)
    assert view.noise_floors == {"gpu_bound": 0.005, "launch_bound": 0.01}
    reached = view.cost["bytes"] / (view.summary["latency_ms"]["median"] / 1e3)
    assert view.summary["mbu"] == pytest.approx(reached / 2.6e12)


def test_peaks_are_measured_first_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peak = {"value": 30e9, "unit": "B/s", "measured_at": "2026-11-27T00:00:00Z"}
    jobs = {"--peaks-only": {"peaks": {"copy_bytes_per_s": peak}, "device": "d"}}
    jobs["--peaks-only"] |= {"environment": {}, "skipped": {}}
    jobs["--noise-job"] = {"gpu_bound": 1e6, "launch_bound": 2e6}
    monkeypatch.setattr("worker.measure._in_own_process", lambda what, target: jobs[what])
    assert main(["decode", *GPU, "--measure-peaks", "--out", str(tmp_path / "b")]) == 0
    gpu = json.loads((tmp_path / "b" / "manifest.json").read_text())["gpu"]
    assert gpu["peaks"]["copy_bytes_per_s"]["value"] == 30e9
    assert gpu["noise_floor_frac"] == 0.0
    assert "30.000 GB/s" in capsys.readouterr().err

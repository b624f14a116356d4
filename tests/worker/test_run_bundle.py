"""`python -m worker.run_bundle`: bundles without broker or database."""

import json
from pathlib import Path

import pytest

from worker.run_bundle import main

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


def test_interleaved_sweep_takes_turns(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    settings = ["--set", "batch=1,2", "--repeats", "2", "--interleave"]
    assert main(["decode", *GPU, *settings, "--out", str(out)]) == 0
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
        (["decode", "--set", "batch"], "name=value"),
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
    assert "failed" in capsys.readouterr().out

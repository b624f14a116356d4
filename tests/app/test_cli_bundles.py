"""Bundles by the command line: a folder of several, read again later, projected."""

import json
import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from app import imports
from app.imports import Given, import_paths, import_several
from captures.contents import file_sha256
from captures.manifest import MANIFEST, load_manifest
from core.config import DataDir
from core.errors import AppError, CaptureError
from tests.app.conftest import Cli
from tests.conftest import H100

EAGER = H100 / "nsys" / "decode_eager.sqlite"


H100_NAME = "NVIDIA H100 80GB HBM3"


def make_bundle(folder: Path, compile_mode: str, gpu: str = H100_NAME) -> Path:
    """Leave a bundle of a clean pass and the real nsys capture of an eager decode."""
    folder.mkdir(parents=True)
    shutil.copyfile(EAGER, folder / "nsys-0.sqlite")
    capture = {"file": "nsys-0.sqlite", "kind": "nsys_sqlite", "sha256": file_sha256(EAGER)}
    capture |= {"bytes": EAGER.stat().st_size, "tool": "nsys", "private_removed": ["argv"]}
    cost = {"flops": 1e9, "bytes": 4e8, "flops_dtype": "bf16", "num_tokens": 1}
    result = {"samples_ns": [2_500_000, 2_400_000, 2_600_000], "cost": cost}
    job: dict[str, Any] = {"schema_version": 1, "workload": "decode", "profilers": ["nsys"]}
    job |= {"params": {"compile": compile_mode}, "repeats": 1, "gpu": gpu}
    done = {"process": 0, "status": "ok", "warnings": []}
    manifest = {
        "schema_version": 1,
        "status": "done",
        "job": job,
        "gpu": {"model": gpu, "num_sms": 132},
        "passes": [
            {"pass": "clean", "captures": [], "result": result, **done},
            {"pass": "nsys", "captures": [capture], **done},
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_folder_of_bundles_becomes_a_run_each(cli: Cli, tmp_path: Path) -> None:
    for mode in ("none", "default"):
        make_bundle(tmp_path / "sweep" / mode, mode)

    runs = cli.json("import", str(tmp_path / "sweep"))["runs"]

    assert [(r["bundle"], r["status"], r["is_new"]) for r in runs] == [
        ("default", "done", True),
        ("none", "done", True),
    ]
    assert cli.json("runs", "--filter", "compile:none workload:decode")["total"] == 1


def test_a_broken_bundle_among_several_is_named_and_the_rest_kept(
    cli: Cli,
    tmp_path: Path,
) -> None:
    make_bundle(tmp_path / "sweep" / "good", "none")
    make_bundle(tmp_path / "sweep" / "bad", "default").joinpath("nsys-0.sqlite").write_text("x")

    assert cli("import", str(tmp_path / "sweep"), "--json") == 2

    bad, good = json.loads(cli.out)["runs"]
    assert (bad["bundle"], good["status"]) == ("bad", "done")
    assert "nsys-0.sqlite" in bad["error"]


def test_a_bundle_with_two_samples_of_one_iteration_is_named_and_the_rest_kept(
    cli: Cli, tmp_path: Path
) -> None:
    make_bundle(tmp_path / "sweep" / "good", "none")
    manifest = make_bundle(tmp_path / "sweep" / "bad", "default") / "manifest.json"
    document = json.loads(manifest.read_text())
    clean = {"pass": "clean", "captures": [], "result": {"samples_ns": [5, 6]}}
    document["passes"] += [clean | {"process": 7}] * 2
    manifest.write_text(json.dumps(document))

    assert cli("import", str(tmp_path / "sweep"), "--json") == 2

    bad, good = json.loads(cli.out)["runs"]
    assert (bad["bundle"], good["status"]) == ("bad", "done")
    assert "pass clean, process 7, iteration 0" in bad["error"]


def test_a_metric_may_have_no_unit(cli: Cli, tmp_path: Path) -> None:
    manifest = make_bundle(tmp_path / "one", "none") / "manifest.json"
    document = json.loads(manifest.read_text())
    metric = {"name": "hits", "value": 5, "unit": None, "phase": None}
    clean = {"pass": "clean", "captures": [], "result": {"metrics": [metric]}}
    document["passes"].append(clean | {"process": 7})
    manifest.write_text(json.dumps(document))

    run_id = cli.json("import", str(tmp_path / "one"))["run_id"]

    metrics = cli.json("show", run_id)["metrics"]
    assert [(m["value"], m["unit"]) for m in metrics if m["name"] == "hits"] == [(5, "")]


def test_one_bundle_is_answered_as_one_run(cli: Cli, tmp_path: Path) -> None:
    assert cli.json("import", str(make_bundle(tmp_path / "one", "none")))["status"] == "done"


@pytest.mark.parametrize("is_bundle", [True, False])
def test_reparse_restores_numbers_from_the_stored_captures(
    cli: Cli,
    data_dir: DataDir,
    tmp_path: Path,
    is_bundle: bool,
) -> None:
    source = make_bundle(tmp_path / "b", "none") if is_bundle else EAGER
    run_id = cli.json("import", str(source), "--name", "mine")["run_id"]
    before = cli.json("show", run_id)
    with sqlite3.connect(data_dir.db_path) as older_reader:
        older_reader.execute("UPDATE runs SET summary = json_remove(summary, '$.busy_ns')")
        older_reader.execute("DELETE FROM phases")

    (entry,) = cli.json("reparse")["runs"]

    assert entry == {"run_id": run_id, "changed": ["busy_ns"]}
    assert cli.json("show", run_id) == before


def test_reparse_names_the_run_whose_capture_is_gone(
    cli: Cli,
    data_dir: DataDir,
) -> None:
    run_id = cli.json("import", str(EAGER))["run_id"]
    before = cli.json("show", run_id)
    shutil.rmtree(data_dir.captures / run_id)

    assert cli("reparse", run_id, "--json") == 2

    assert "the stored capture is gone" in json.loads(cli.out)["runs"][0]["error"]
    assert cli.json("show", run_id) == before


def test_projection_is_labelled_with_its_assumed_band(cli: Cli, tmp_path: Path) -> None:
    run_id = cli.json("import", str(make_bundle(tmp_path / "b", "none")))["run_id"]

    found = cli.json("project", run_id, "--gpu", "4090")

    latency = found["latency_ms"]
    assert (found["kind"], found["is_band_learned"]) == ("projected", False)
    assert found["gpu"] == "NVIDIA GeForce RTX 4090"
    assert latency["low"] < latency["median"] < latency["high"]
    assert latency["median"] > found["measured_ms"]


def test_band_is_the_largest_error_of_jobs_measured_on_both_gpus(cli: Cli, tmp_path: Path) -> None:
    other = "NVIDIA GeForce RTX 4090"
    for mode in ("default", "max-autotune", "reduce-overhead"):
        for gpu in (H100_NAME, other):
            cli.json("import", str(make_bundle(tmp_path / gpu / mode, mode, gpu)))
    run_id = cli.json("import", str(make_bundle(tmp_path / "b", "none")))["run_id"]

    found = cli.json("project", run_id, "--gpu", "4090")

    errors = [pair["error_frac"] for pair in found["pairs"]]
    assert (len(errors), found["is_band_learned"]) == (3, True)
    factors = [max(1 + e, 1 / (1 + e)) for e in errors]
    assert found["band_frac"] == pytest.approx(max(factors) - 1) and found["band_frac"] > 0
    assert found["latency_ms"]["low"] > 0
    assert found["latency_ms"]["high"] == pytest.approx(
        found["latency_ms"]["median"] * (1 + found["band_frac"])
    )
    assert cli.json("project", run_id, "--gpu", "H200")["is_band_learned"] is False


def test_projection_to_an_unknown_gpu_lists_the_known(cli: Cli, tmp_path: Path) -> None:
    run_id = cli.json("import", str(make_bundle(tmp_path / "b", "none")))["run_id"]

    assert cli("project", run_id, "--gpu", "8800 GTX") == 2
    assert "8800 GTX" in cli.err
    assert "NVIDIA H200" in cli.err


def test_projection_needs_a_latency(cli: Cli) -> None:
    run_id = cli.json("import", str(EAGER))["run_id"]

    assert cli("project", run_id, "--gpu", "4090") == 2
    assert "no clean latency" in cli.err


def test_each_of_several_files_gets_its_own_answer(data_dir: DataDir, tmp_path: Path) -> None:
    """Also after one that is refused before anything is read."""
    os.mkfifo(tmp_path / "pipe.sqlite")
    paths = [
        tmp_path / "pipe.sqlite",
        EAGER,
        tmp_path / "none.json",
        H100.parent / "README.md",
        EAGER,
    ]
    found = import_several(data_dir, [Given(paths=[path]) for path in paths])
    shown = [str(entry) if isinstance(entry, AppError) else "imported" for entry in found]
    assert [text.split(":")[0].split("/")[-1] for text in shown] == [
        "pipe.sqlite",
        "imported",
        "none.json",
        "README.md",
        "imported",
    ]


@pytest.mark.parametrize("name", ["t.json", "t.sqlite", "t.pickle", "t.csv"])
def test_file_of_holes_that_no_disk_can_hold_is_refused_at_once(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    disk = os.statvfs(tmp_path)
    path.write_bytes(EAGER.read_bytes()[:4096])
    try:
        os.truncate(path, disk.f_blocks * disk.f_frsize + (1 << 30))
    except OSError:
        pytest.skip("no file of this size can be made here")
    started = time.process_time()

    assert cli("import", str(path)) == 2

    assert name in cli.err and "more than its whole disk" in cli.err
    assert time.process_time() - started < 10


def test_file_that_became_a_pipe_since_it_was_looked_at_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CaptureError, match="not a regular file"):
        file_sha256(tmp_path / "pipe")
    os.mkfifo(tmp_path / MANIFEST)
    with pytest.raises(CaptureError, match="not a regular file"):
        load_manifest(tmp_path)


def test_manifest_that_changed_since_the_bundle_was_read_is_not_stored(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle(tmp_path / "bundle", "none")
    read = imports._stored

    def changed_meanwhile(*told: Any) -> Any:
        text = (bundle / MANIFEST).read_text()
        (bundle / MANIFEST).write_text(text.replace('"status": "done"', '"status": "failed"'))
        return read(*told)

    monkeypatch.setattr(imports, "_stored", changed_meanwhile)

    with pytest.raises(CaptureError, match="changed while the bundle was read"):
        import_paths(data_dir, [bundle])
    assert not list(data_dir.captures.iterdir())

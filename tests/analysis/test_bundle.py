"""Bundles and loose files: what is checked, and what several captures of a pass add up to."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import captures.scrub
from analysis import capture_file, side_by_side
from analysis.assemble import assemble
from analysis.bundle import load_paths
from analysis.capture_file import Staging, read_capture
from analysis.transfer import write_run
from captures.contents import file_sha256, state
from captures.manifest import check_manifest
from core.errors import AppError, CaptureError
from tests.analysis.readers.nsys_files import edited
from tests.conftest import H100

TRACE = H100 / "kineto" / "train_bf16.json.gz"
EAGER = H100 / "nsys" / "decode_eager.sqlite"


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    folder = tmp_path / "staged"
    folder.mkdir()
    return Staging(folder=folder)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle with a clean pass of two processes and the trace of the real training step."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    shutil.copyfile(TRACE, folder / "trace-0.json.gz")
    capture = {"file": "trace-0.json.gz", "kind": "torch_trace", "sha256": file_sha256(TRACE)}
    capture |= {"bytes": TRACE.stat().st_size, "tool": "torch", "private_removed": ["argv"]}
    manifest = {
        "schema_version": 1,
        "status": "done",
        "job": {
            "schema_version": 1,
            "workload": "transformer",
            "params": {"batch": 2},
            "profilers": ["trace"],
            "repeats": 2,
            "gpu": "NVIDIA H100 80GB HBM3",
        },
        "gpu": {"model": "NVIDIA H100 80GB HBM3", "num_sms": 132},
        "environment": {"torch": "2.11.0"},
        "passes": [
            _clean(0, [2_000_000, 2_200_000]),
            _clean(1, [2_100_000, 2_300_000]),
            {"pass": "trace", "process": 0, "captures": [capture], "warnings": []},
        ],
        "warnings": [{"code": "noisy", "message": "another program used the GPU"}],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _clean(process: int, samples_ns: list[int]) -> dict[str, Any]:
    result = {
        "samples_ns": samples_ns,
        "phase_samples_ns": {"forward": [900_000 + process * 200_000]},
        "cost": {"flops": 1e9, "bytes": 4e8, "flops_dtype": "bf16"},
        "memory": {"peak_allocated_bytes": 1000 + process},
        "metrics": [{"name": "tokens_per_s", "value": 10.0 + process, "unit": "tokens/s"}],
    }
    return {"pass": "clean", "process": process, "captures": [], "result": result}


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


def test_bundle_gives_samples_metrics_and_captures(bundle: Path, staging: Staging) -> None:
    run = assemble(load_paths([bundle], staging))

    assert run.summary["latency_ms"]["n"] == 4
    assert run.summary["latency_ms"]["median"] == pytest.approx(2.15)
    assert run.summary["peak_memory_bytes"] == 1001
    assert run.summary["num_kernels"] == 1582
    metrics = {(m.pass_name, m.phase, m.name): m.value for m in run.metrics}
    assert metrics["clean", "", "tokens_per_s"] == pytest.approx(10.5)
    assert metrics["clean", "forward", "phase_latency"] == pytest.approx(1_000_000)
    assert "argv" in run.captures[0].private_removed
    assert {w.warning.code for w in run.warnings} >= {"noisy"}


def test_what_two_passes_say_alike_is_said_once(bundle: Path, staging: Staging) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    again = {"code": "noisy", "message": "another program used the GPU"}
    for entry in manifest["passes"]:
        entry["warnings"] = [again, again]
    (bundle / "manifest.json").write_text(json.dumps(manifest))

    run = assemble(load_paths([bundle], staging))

    assert [w.warning.code for w in run.warnings].count("noisy") == 1


def test_bundle_file_that_was_changed_is_refused(bundle: Path, staging: Staging) -> None:
    with (bundle / "trace-0.json.gz").open("ab") as file:
        file.write(b"x")

    with pytest.raises(CaptureError, match="differ from the hash"):
        load_paths([bundle], staging)


@pytest.mark.parametrize(
    ("edit", "word"),
    [
        (lambda m: m.update(schema_version=99), "schema_version is 99"),
        (lambda m: m.pop("job"), "job"),
        (lambda m: m["job"].pop("params"), "job"),
        (lambda m: m.update(status="great"), "status"),
        (lambda m: m["passes"][0].update({"pass": "dirty"}), r"passes\[0\].pass"),
        (lambda m: m["passes"][0]["result"].update(samples_ns=["1"]), r"samples_ns\[0\]"),
        (lambda m: m["passes"][0]["result"].update(samples_ns=[-1]), r"samples_ns\[0\]"),
        (lambda m: m["passes"][2]["captures"][0].update(file="../../etc/passwd"), "plain file"),
        (lambda m: m["passes"][2]["captures"][0].update(file="gone.json"), "missing"),
        (lambda m: m.update(passes={}), "passes"),
        (lambda m: m.update(warnings=[{"code": 1}]), r"warnings\[0\].code"),
    ],
)
def test_wrong_manifest_names_the_field(
    bundle: Path, staging: Staging, edit: Callable[[dict[str, Any]], object], word: str
) -> None:
    change(bundle, edit)

    with pytest.raises(CaptureError, match=word):
        load_paths([bundle], staging)


@pytest.mark.parametrize("text", ["", "[]", "nul", "[" * 100_000, '{"schema_version": 1}'])
def test_manifest_that_is_none_is_refused(bundle: Path, staging: Staging, text: str) -> None:
    (bundle / "manifest.json").write_text(text)

    with pytest.raises(CaptureError, match=r"manifest\.json"):
        load_paths([bundle], staging)


def test_unreadable_capture_of_a_pass_does_not_cost_the_clean_numbers(
    bundle: Path, staging: Staging
) -> None:
    broken = bundle / "trace-0.json.gz"
    broken.write_bytes(TRACE.read_bytes()[:5000])
    entry = {"sha256": file_sha256(broken), "bytes": 5000}
    change(bundle, lambda m: m["passes"][2]["captures"][0].update(entry))

    run = assemble(load_paths([bundle], staging))

    assert run.summary["latency_ms"]["n"] == 4
    assert "num_kernels" not in run.summary
    assert {w.warning.code for w in run.warnings} >= {"capture_unreadable"}


def test_folder_without_manifest_says_what_to_give(tmp_path: Path, staging: Staging) -> None:
    with pytest.raises(CaptureError, match=r"no manifest\.json"):
        load_paths([tmp_path], staging)


def test_missing_file_is_named(staging: Staging) -> None:
    with pytest.raises(AppError, match=r"gone\.sqlite"):
        load_paths([Path("gone.sqlite")], staging)


def test_two_ranks_add_up(staging: Staging) -> None:
    other = H100 / "nsys" / "decode_max_autotune.sqlite"

    run = assemble(load_paths([EAGER, other], staging))

    assert run.summary["num_kernels"] == 480
    assert run.summary["kernel_time_ns"] == 2_184_310 + 1_616_232
    assert run.summary["span_ns"] == 12_578_217 + 5_154_713
    busy = 2_179_670 + 1_616_232
    assert run.summary["idle_frac"] == pytest.approx(1 - busy / run.summary["span_ns"])
    processes = {int(c.tables.phases["process"].iloc[0]) for c in run.captures}
    assert processes == {0, 1}


def test_two_recordings_of_one_run_say_how_their_clocks_stand(staging: Staging) -> None:
    other = H100 / "nsys" / "decode_max_autotune.sqlite"

    run = assemble(load_paths([EAGER, other], staging))

    spans = [c.tables.spans for c in run.captures]
    assert [set(s["process"].to_pylist()) for s in spans if s is not None] == [{0}, {1}]
    message = next(w.warning.message for w in run.warnings if w.warning.code == "captures_added_up")
    later_s = (1_795_811_921_740_101_244 - 1_795_811_852_100_351_879) / 1e9
    assert f"decode_max_autotune.sqlite +{later_s:.3f} s" in message


def test_vendor_report_beside_its_capture_is_not_counted_again(staging: Staging) -> None:
    report = H100 / "nsys" / "decode_eager.cuda_gpu_kern_sum.csv"

    run = assemble(load_paths([report, EAGER], staging))

    assert run.summary["num_kernels"] == 380
    assert run.summary["kernel_time_ns"] == 2_184_310


def test_captures_of_equal_sums_that_ran_at_other_times_both_count(
    staging: Staging, tmp_path: Path
) -> None:
    later = 'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + 7, "end" = "end" + 7'
    other = edited("decode_eager.sqlite", tmp_path, [later])

    run = assemble(load_paths([EAGER, other], staging))

    assert run.summary["num_kernels"] == 2 * 380
    assert "duplicate_capture" not in {w.warning.code for w in run.warnings}


def test_two_pages_of_one_ncu_report_are_one_set_of_launches(staging: Staging) -> None:
    pages = ["decode_eager.details.csv.gz", "decode_eager.raw.csv"]

    run = assemble(load_paths([H100 / "ncu" / name for name in pages], staging))

    frames = [c.tables.counters for c in run.captures if c.tables.counters is not None]
    assert [len(f) for f in frames] == [38]
    assert frames[0]["dram_bytes"].notna().all()
    assert {w.warning.code for w in run.warnings} >= {"duplicate_capture"}


def test_opaque_time_leaves_the_gemm_share_unknown(staging: Staging) -> None:
    run = assemble(load_paths([H100 / "nsys" / "decode_cuda_graph_whole.sqlite"], staging))

    assert run.summary["opaque_graph_ns"] == 2_330_627
    assert run.summary["unclassified_frac"] == 1.0
    assert "gemm_frac" not in run.summary


def test_a_file_that_is_written_to_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "eager.sqlite"
    shutil.copyfile(EAGER, path)
    copy = captures.scrub.scrub

    def written_meanwhile(source, kind, stored, *words):
        removed = copy(source, kind, stored, *words)
        with path.open("ab") as file:
            file.write(b"more")
        return removed

    monkeypatch.setattr(captures.scrub, "scrub", written_meanwhile)
    (tmp_path / "staging").mkdir()
    with pytest.raises(CaptureError, match="changed while it was read"):
        load_paths([path], Staging(folder=tmp_path / "staging"))


def _another_for_a_moment(path: Path, copy: Callable[[], Any]) -> Any:
    path.rename(path.with_name("kept"))
    path.symlink_to(path.with_name("other"))
    copied = copy()
    path.unlink()
    path.with_name("kept").rename(path)
    return copied


def _another_in_its_place(path: Path, copy: Callable[[], Any]) -> Any:
    before = path.stat()
    path.write_bytes(path.with_name("other").read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return copy()


@pytest.mark.parametrize("swap", [_another_for_a_moment, _another_in_its_place])
@pytest.mark.parametrize("keep_private", [False, True])
def test_what_stands_for_a_file_while_it_is_read_is_not_stored(
    bundle: Path,
    staging: Staging,
    monkeypatch: pytest.MonkeyPatch,
    swap: Callable[[Path, Callable[[], Any]], Any],
    keep_private: bool,
) -> None:
    path = bundle / "trace-0.json.gz"
    other = bytearray(path.read_bytes())
    other[4] ^= 1  # the time in gzip's header: as long, and read as well
    (bundle / "other").write_bytes(other)
    place, name = (capture_file, "_copy_whole") if keep_private else (captures.scrub, "scrub")
    copy = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *told: swap(path, lambda: copy(*told)))

    data = load_paths([bundle], replace(staging, keep_private=keep_private))

    assert data.captures == ()
    codes = [w.warning.code for w in data.warnings if w.pass_name == "trace"]
    assert codes == ["capture_unreadable"]


@pytest.mark.parametrize("keep_private", [False, True])
@pytest.mark.parametrize("source", [EAGER, TRACE], ids=["database", "trace"])
def test_a_folder_that_stands_for_another_while_a_file_is_read_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Path, keep_private: bool
) -> None:
    place, other = tmp_path / "above" / "in", tmp_path / "other"
    for folder in (place, other / "in"):
        folder.mkdir(parents=True)
    path = place / source.name
    shutil.copyfile(source, path)
    if source is TRACE:
        instead = gzip.decompress(TRACE.read_bytes()).replace(
            b'"cat": "kernel"', b'"cat": "kernal"'
        )
        (other / "in" / source.name).write_bytes(gzip.compress(instead))
    else:
        shutil.copyfile(H100 / "nsys" / "forward_fp32.sqlite", other / "in" / source.name)

    def swapped(read: Callable[..., Any], *told: Any) -> Any:
        above = path.parent.parent
        above.rename(tmp_path / "kept")
        other.rename(above)
        try:
            return read(*told)
        finally:
            above.rename(other)
            (tmp_path / "kept").rename(above)

    for module, name in ((capture_file, "_copy_whole"), (captures.scrub, "scrub")):
        monkeypatch.setattr(module, name, partial(swapped, getattr(module, name)))
    (tmp_path / "staging").mkdir()
    staging = Staging(folder=tmp_path / "staging", keep_private=keep_private, copies_first=True)

    (capture,) = load_paths([path], staging).captures

    assert capture.source_sha256 == file_sha256(source)
    assert (capture.sha256 == capture.source_sha256) == keep_private
    alone = tmp_path / "alone"
    alone.mkdir()
    (plain,) = load_paths([source], replace(staging, folder=alone, copies_first=False)).captures
    assert capture.sha256 == plain.sha256


def test_a_hash_is_taken_over_while_the_file_is_in_the_state_that_it_was_found_in(
    staging: Staging,
) -> None:
    seen = state(EAGER, with_links=True)
    known = replace(staging, hashes={str(EAGER): (seen, "of this state")})
    other = replace(staging, hashes={str(EAGER): (seen[:0], "of another state")})

    found = [
        read_capture(EAGER, given, f"{number}.sqlite", kind=None, pass_name=None)
        for number, given in enumerate((known, other))
    ]

    assert [c.source_sha256 for c in found] == ["of this state", file_sha256(EAGER)]


def test_a_file_that_cannot_be_read_is_named_where_it_lies_and_not_by_its_copy(
    tmp_path: Path,
) -> None:
    path = tmp_path / "odd.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(200))
    (tmp_path / "staging").mkdir()

    with pytest.raises(CaptureError) as refused:
        load_paths([path], Staging(folder=tmp_path / "staging", copies_first=True))

    assert refused.value.path == str(path)
    assert not list((tmp_path / "staging").iterdir())


def test_a_log_beside_a_bundles_database_that_no_manifest_names_is_not_read(
    bundle: Path, staging: Staging
) -> None:
    shutil.copyfile(EAGER, bundle / "eager.sqlite")
    (bundle / "eager.sqlite-wal").write_bytes(b"not named")
    item = {"file": "eager.sqlite", "kind": "nsys_sqlite", "sha256": file_sha256(EAGER)}
    item |= {"bytes": EAGER.stat().st_size}
    change(bundle, lambda m: m["passes"][2].update({"pass": "nsys", "captures": [item]}))

    data = load_paths([bundle], staging)

    assert data.captures == ()
    (warning,) = [w.warning for w in data.warnings if w.pass_name == "nsys"]
    assert "differ from the hash" in warning.message


def test_mfu_needs_a_known_peak(bundle: Path, staging: Staging) -> None:
    data = load_paths([bundle], staging)

    known = assemble(data, peaks={"gemm_bf16_flops_per_s": 1e12, "copy_bytes_per_s": 4e11})

    assert known.summary["mfu"] == pytest.approx(1e9 / 2.15e-3 / 1e12)  # 0.465
    assert known.summary["mbu"] == pytest.approx(4e8 / 2.15e-3 / 4e11)
    assert "mfu" not in assemble(data).summary


def test_share_above_the_peak_is_an_error_and_no_figure(bundle: Path, staging: Staging) -> None:
    run = assemble(load_paths([bundle], staging), peaks={"gemm_bf16_flops_per_s": 1e11})

    assert "mfu" not in run.summary
    assert {w.warning.code for w in run.warnings} >= {"mfu_above_one"}


def test_manifest_keeps_what_it_does_not_know() -> None:
    manifest = {"schema_version": 1, "status": "done", "passes": [], "extra": 1}
    manifest["job"] = {
        "schema_version": 1,
        "workload": "w",
        "params": {},
        "profilers": [],
        "repeats": 1,
        "gpu": "cpu",
    }

    assert check_manifest(manifest)["extra"] == 1


def test_an_own_program_keeps_the_ranges_it_names(bundle: Path, staging: Staging) -> None:
    shutil.copyfile(EAGER, bundle / "nsys-0.sqlite")
    capture = {"file": "nsys-0.sqlite", "kind": "nsys_sqlite", "sha256": file_sha256(EAGER)}
    capture |= {"bytes": EAGER.stat().st_size}

    def edit(manifest: dict[str, Any]) -> None:
        params = {"argv": '["x"]', "ranges": "attention, rotary"}
        manifest["job"] |= {"workload": "command", "params": params}
        manifest["passes"] = [
            {"pass": "nsys", "process": 0, "captures": [capture], "warnings": [], "result": {}}
        ]

    change(bundle, edit)
    run = assemble(load_paths([bundle], staging))
    paths = set(run.captures[0].tables.phases["path"])
    assert "BENCHMARK/iteration_0/forward/attention" in paths
    assert "BENCHMARK/iteration_0" in paths
    assert not any(path.endswith(("forward", "mlp")) for path in paths)
    assert run.summary["num_kernels"] == 380
    (said,) = [w.warning.message for w in run.warnings if w.warning.code == "range_not_met"]
    assert "'rotary'" in said


def test_captures_that_are_read_side_by_side_say_what_they_say_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [H100 / "nsys" / "decode_eager.sqlite", H100 / "nsys" / "train_bf16.sqlite"]
    read = {}
    for large_bytes in (1 << 40, 0):
        monkeypatch.setattr(side_by_side, "LARGE_BYTES", large_bytes)
        folder = tmp_path / str(large_bytes)
        folder.mkdir()
        run = assemble(load_paths(files, Staging(folder=folder)))
        out = tmp_path / f"out-{large_bytes}"
        out.mkdir()
        write_run(run, out)
        read[large_bytes] = (out / "run.json").read_text().replace(str(folder), "")

    assert read[0] == read[1 << 40]
    assert '"decode_eager.sqlite"' in read[0] and '"train_bf16.sqlite"' in read[0]

"""A job becomes a bundle; what fails in it is named, and costs no more than it must."""

import csv
import gzip
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from core.spec import JobSpec
from tests.worker.conftest import FAKE_TOOLS, tools_on_path
from worker import passes
from worker.execute import JobLimits, execute, keeps_reports, warnings_of
from worker.passes import GpuTarget

H100 = GpuTarget(
    visible_devices="0", smi_selector="0", facts={"model": "NVIDIA H100 80GB HBM3", "driver": "580"}
)


def run(
    tmp_path: Path,
    python: str,
    *,
    profilers: tuple[str, ...] = (),
    repeats: int = 1,
    gpu: str = "NVIDIA H100 80GB HBM3",
    params: dict[str, Any] | None = None,
    tools: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    spec = JobSpec(
        workload="decode", params=params or {}, profilers=profilers, repeats=repeats, gpu=gpu,
        **(tools or {}),
    )  # fmt: skip
    return execute(spec, tmp_path / "bundle", python=python, gpu=H100, **options)


def by_pass(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    return next(p for p in manifest["passes"] if p["pass"] == name)


Job = tuple[Path, dict[str, Any], list[str]]
"""A folder with `bundle`, the manifest that came back, and the arguments that ncu was given."""


def whole_job(folder: Path, reports: str, **options: Any) -> Job:
    """Run a job on a host with both profilers that keeps reports `always` or `never`."""
    with pytest.MonkeyPatch.context() as patch, tools_on_path(patch):
        patch.setenv("FAKE_NCU_ARGV", str(folder / "argv.json"))
        patch.setenv("WARPBOARD_KEEP_REPORTS", reports)
        manifest = run(folder, str(FAKE_TOOLS / "fake_python"), **options)
    return folder, manifest, json.loads((folder / "argv.json").read_text())


@pytest.fixture(scope="module")
def every_pass(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job with all profilers that asks for its reports, on a host that never keeps them."""
    profilers = ("nsys", "ncu", "memory", "trace")
    asked = {"keep_reports": True}
    folder = tmp_path_factory.mktemp("every-pass")
    return whole_job(folder, "never", profilers=profilers, repeats=2, tools=asked)


@pytest.fixture(scope="module")
def full_set(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job with ncu's full set that asks for no reports, on a host that always keeps them."""
    asked = {"ncu_set": "full", "keep_reports": False}
    folder = tmp_path_factory.mktemp("full-set")
    return whole_job(folder, "always", profilers=("nsys", "ncu"), tools=asked)


def test_a_job_with_all_profilers_leaves_a_whole_bundle_without_reports(every_pass: Job) -> None:
    folder, manifest, _ = every_pass
    assert manifest["status"] == "done"
    assert manifest == json.loads((folder / "bundle" / "manifest.json").read_text())
    outcomes = [(p["pass"], p["process"], p["outcome"]) for p in manifest["passes"]]
    assert outcomes == [
        ("clean", 0, "ok"),
        ("clean", 1, "ok"),
        ("nsys", 0, "ok"),
        ("ncu", 0, "ok"),
        ("memory", 0, "ok"),
        ("trace", 0, "ok"),
    ]
    captures = [c for p in manifest["passes"] for c in p["captures"]]
    assert [c["kind"] for c in captures] == [
        "nsys_sqlite",
        "ncu_csv",
        "ncu_csv",
        "memory_snapshot",
        "torch_trace",
    ]
    left = {p.name for p in (folder / "bundle").iterdir()}
    assert left == {c["file"] for c in captures} | {"manifest.json", "log.txt"}
    data = [(folder / "bundle" / c["file"]).read_bytes() for c in captures]
    assert [hashlib.sha256(d).hexdigest() for d in data] == [c["sha256"] for c in captures]
    assert [len(d) for d in data] == [c["bytes"] for c in captures]


def test_nsys_capture_keeps_its_numbers(every_pass: Job) -> None:
    folder, _, _ = every_pass
    db = sqlite3.connect(folder / "bundle" / "nsys-0.sqlite")
    row = db.execute('SELECT COUNT(*), SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL')
    assert row.fetchone() == (380, 2_184_310)


def test_ncu_measures_each_launch_configuration_once(every_pass: Job) -> None:
    folder, manifest, argv = every_pass
    notes = by_pass(manifest, "ncu")["notes"]
    assert argv[argv.index("--filter-mode") + 1] == "per-launch-config"
    assert argv[argv.index("--kernel-name-base") + 1] == "mangled"
    assert argv[argv.index("--kernel-id") + 1].startswith("::regex:^(nvjet")
    metrics = argv[argv.index("--metrics") + 1].split(",")
    kinds = ("bf16_dst_fp32", "fp16", "fp64", "fp8", "tf32_dst_fp32")
    assert metrics == [f"sm__ops_path_tensor_src_{kind}.sum" for kind in kinds]
    assert notes["kernel_time_share_frac"] >= 0.99
    assert notes["num_launches"] == 38
    assert (notes["num_configurations"], notes["num_launches_in_nsys"]) == (17, 380)
    assert not [w for w in warnings_of(manifest) if w["code"] == "ncu_partial_coverage"]
    with gzip.open(folder / "bundle" / "ncu-0.raw.csv.gz", "rt") as file:
        hosts = {row["Host Name"] for row in csv.DictReader(file)}  # blank on the row of units
    assert hosts == {"", "127.0.0.1"}


@pytest.mark.usefixtures("gpu_host")
def test_little_of_the_gpu_time_measured_is_a_warning(
    tmp_path: Path, fake_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_NCU_LAUNCHES", "2")
    manifest = run(tmp_path, fake_python, profilers=("nsys", "ncu"))
    share = by_pass(manifest, "ncu")["notes"]["kernel_time_share_frac"]
    said = [w["message"] for w in warnings_of(manifest) if w["code"] == "ncu_partial_coverage"]
    assert share < 0.9
    assert f"{share:.0%} of the GPU time" in said[0]


def test_clocks_are_recorded_with_the_throttle_reason(every_pass: Job) -> None:
    _, manifest, _ = every_pass
    clocks = by_pass(manifest, "clean")["clocks"]
    assert clocks["before"]["sm_clock_mhz"] == 1980
    assert clocks["during"]["temperature_c"]["max"] == 41
    assert clocks["during"]["throttle_reasons"] == ["sw_power_cap"]


@pytest.mark.usefixtures("gpu_host")
@pytest.mark.parametrize(
    ("variable", "fault", "outcome", "words"),
    [
        ("FAKE_NCU_FAULT", "counters", "counters_not_permitted", "NVreg_RestrictProfilingToAdmin"),
        ("FAKE_NCU_FAULT", "no_kernels", "no_kernels_profiled", "lean_reduction_kernel"),
        ("FAKE_NCU_FAULT", "crash", "tool_crashed", "Failed to initialize the profiler"),
        ("FAKE_NSYS_FAULT", "no_libdw", "tool_missing", "libdw1"),
        ("FAKE_NSYS_FAULT", "qdstrm", "tool_crashed", "Importer error"),
        ("FAKE_NSYS_FAULT", "no_export", "tool_crashed", "export wrote nothing"),
        ("FAKE_NSYS_FAULT", "hangs", "tool_crashed", "nsys export did not end and was stopped"),
        ("FAKE_NCU_FAULT", "floods", "tool_crashed", "ncu --import wrote without end"),
        ("FAKE_NSYS_CAPTURE", "no_gpu_work.sqlite", "no_kernels_profiled", "no GPU activity"),
    ],
)
def test_profiler_fault_is_named_and_keeps_the_clean_numbers(
    tmp_path: Path,
    fake_python: str,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    fault: str,
    outcome: str,
    words: str,
) -> None:
    monkeypatch.setenv(variable, fault)
    monkeypatch.setattr(passes, "EXPORT_LIMIT_S", 5.0)
    monkeypatch.setattr(passes, "MAX_TOOL_OUTPUT_BYTES", 16 << 20)
    tool = "ncu" if "NCU" in variable else "nsys"
    manifest = run(tmp_path, fake_python, profilers=(tool,))
    assert manifest["status"] == "done"
    assert len(by_pass(manifest, "clean")["result"]["samples_ns"]) == 12
    assert by_pass(manifest, tool)["outcome"] == outcome
    messages = [w["message"] for w in warnings_of(manifest) if w["code"] == outcome]
    assert words in messages[0]


@pytest.mark.usefixtures("gpu_host")
def test_program_that_dies_after_its_result_keeps_its_counters(
    tmp_path: Path, fake_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU_FAULT", "late")
    manifest = run(tmp_path, fake_python, profilers=("ncu",))
    record = by_pass(manifest, "ncu")
    assert (record["outcome"], record["returncode"], len(record["captures"])) == ("ok", 6, 2)
    said = [w["message"] for w in warnings_of(manifest) if w["code"] == "ended_after_result"]
    assert "ncu pass" in said[0] and "code 6: terminate called" in said[0]


def test_missing_tool_is_named_with_the_fix(
    tmp_path: Path, fake_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_NCU", "/nonexistent/ncu")
    manifest = run(tmp_path, fake_python, profilers=("ncu",))
    assert by_pass(manifest, "ncu")["outcome"] == "tool_missing"
    assert "WARPBOARD_NCU" in warnings_of(manifest)[0]["message"]


def test_missing_tool_of_a_cpu_job_is_no_reason_to_install_one_for_gpus(
    tmp_path: Path, fake_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.tools._candidates", lambda name, patterns: [])
    manifest = run(tmp_path, fake_python, profilers=("nsys",), gpu="cpu")
    (warning,) = (w for w in warnings_of(manifest) if w["code"] == "tool_missing")
    assert "trace profiler" in warning["message"] and "NVIDIA" not in warning["message"]


@pytest.mark.parametrize(
    ("fault", "status", "outcome"),
    [
        ("oom", "oom", "oom"),
        ("host_oom", "oom", "oom"),
        ("killed", "failed", "workload_failed"),
        ("no_kernel_image", "failed", "no_kernel_image"),
        ("error", "failed", "workload_failed"),
    ],
)
def test_failure_of_the_program_ends_the_job_with_its_reason(
    tmp_path: Path, fake_python: str, fault: str, status: str, outcome: str
) -> None:
    manifest = run(tmp_path, fake_python, params={"fault": fault}, profilers=("trace",), repeats=3)
    assert manifest["status"] == status
    assert [p["outcome"] for p in manifest["passes"]] == [outcome]
    assert manifest["error"]


def test_oom_tells_phase_and_size(tmp_path: Path, fake_python: str) -> None:
    manifest = run(tmp_path, fake_python, params={"fault": "oom"})
    assert manifest["oom"] == {
        "where": "device",
        "phase": "backward",
        "requested_bytes": 81920000,
    }


def test_warning_of_the_program_reaches_the_run(tmp_path: Path, fake_python: str) -> None:
    manifest = run(tmp_path, fake_python, params={"fault": "cuda_graphs_skipped"})
    assert [w["code"] for w in warnings_of(manifest)] == ["cuda_graphs_skipped"]


def test_gpu_job_that_ran_on_the_cpu_is_no_result(tmp_path: Path) -> None:
    stand_in = tmp_path / "python"
    line = {"workload": "decode", "status": "ok", "samples_ns": [1], "device": {"name": "cpu"}}
    stand_in.write_text(f"#!/bin/sh\necho '{json.dumps(line)}'\n")
    stand_in.chmod(0o755)
    manifest = run(tmp_path, str(stand_in))
    assert manifest["status"] == "failed"
    assert "no CUDA device" in manifest["error"]


def test_time_limit_is_an_outcome(tmp_path: Path, fake_python: str) -> None:
    limits = JobLimits(clean_s=0.5, grace_s=0.5)
    manifest = run(tmp_path, fake_python, params={"sleep_s": 600}, limits=limits)
    assert (manifest["status"], manifest["passes"][0]["outcome"]) == ("failed", "timeout")


def test_cancel_ends_the_job(tmp_path: Path, fake_python: str) -> None:
    seen: list[str] = []
    manifest = run(
        tmp_path,
        fake_python,
        params={"sleep_s": 600},
        profilers=("trace",),
        on_event=lambda e: seen.append(e["message"]),
        should_cancel=lambda: any(m.startswith("sleeping") for m in seen),
    )
    assert manifest["status"] == "cancelled"
    assert [p["outcome"] for p in manifest["passes"]] == ["cancelled"]


def test_log_and_manifest_name_no_folder_of_this_host(every_pass: Job) -> None:
    folder, _, _ = every_pass
    written = (folder / "bundle" / "log.txt").read_text()
    written += (folder / "bundle" / "manifest.json").read_text()
    assert str(folder) not in written
    assert str(FAKE_TOOLS) not in written


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(
    ("host", "kept"), [("asked", None), ("always", True), ("never", False), ("", None)]
)
def test_reports_are_kept_as_the_job_asks_unless_the_host_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, asked: bool, host: str, kept: bool | None
) -> None:
    monkeypatch.setenv("WARPBOARD_KEEP_REPORTS", host)

    wanted = asked if kept is None else kept
    assert keeps_reports(JobSpec(workload="decode", keep_reports=asked)) is wanted


def test_reports_are_in_the_bundle_where_the_host_keeps_them(
    every_pass: Job, full_set: Job
) -> None:
    reports = [
        {p.name for p in (job[0] / "bundle").glob("*-rep")} for job in (every_pass, full_set)
    ]
    assert reports == [set(), {"nsys-0.nsys-rep", "ncu-0.ncu-rep"}]


def test_full_set_keeps_the_most_sampled_instructions(full_set: Job) -> None:
    _, manifest, argv = full_set
    kinds = [c["kind"] for p in manifest["passes"] for c in p["captures"]]
    assert kinds.count("ncu_source") == 1
    sections = {argv[i + 1] for i, word in enumerate(argv) if word == "--section"}
    assert {"WarpStateStats", "SourceCounters", "MemoryWorkloadAnalysis_Chart"} <= sections

"""What a host has and lacks, each fault with its fix."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.worker.conftest import FAKE_TOOLS
from worker import tools
from worker.clocks import parse_sample, summarise
from worker.probe import Gpu, _torch_checks, counter_permission, parse_gpu, probe_gpus
from worker.targets import find_targets
from worker.tools import run_quietly


@pytest.mark.usefixtures("gpu_host")
def test_tools_are_found_with_their_versions() -> None:
    assert (tools.find_nsys().version, tools.find_ncu().version) == ("2025.3.2.474", "2025.3.1.0")
    assert tools.find_nsys().path == str(FAKE_TOOLS / "nsys")


@pytest.mark.usefixtures("gpu_host")
def test_missing_library_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NSYS_FAULT", "no_libdw")
    found = tools.find_nsys()
    assert not found.is_usable
    assert "libdw.so.1" in (found.fault or "")
    assert "apt-get install libdw1" in (found.fix or "")


@pytest.mark.usefixtures("gpu_host")
@pytest.mark.parametrize("name", ["nsys", "ncu"])
def test_tool_that_is_too_old_is_named_with_what_is_needed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / name
    tool.write_text("#!/bin/sh\necho 'NVIDIA tool\nVersion 2021.3.1.0 (build 1)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv(f"WARPBOARD_{name.upper()}", str(tool))
    found = {"nsys": tools.find_nsys, "ncu": tools.find_ncu}[name]()
    assert not found.is_usable
    assert "2021.3.1.0, 2022.4 or newer" in (found.fault or "")
    assert f"WARPBOARD_{name.upper()}" in (found.fix or "")


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ({"error": "No module named 'torch'"}, "Install PyTorch"),
        ({"torch": "2.13.0+cpu"}, "CPU build"),
        ({"torch": "2.13.0", "cuda": "13.0", "cuda_error": "The NVIDIA driver on your system is too"
          " old (found version 11040)"}, "driver is too old for CUDA 13.0: update the driver"),
        ({"torch": "2.13.0", "cuda": "13.0", "devices": []}, "CUDA_VISIBLE_DEVICES"),
        ({"torch": "2.13.0", "cuda": "13.0", "arch_list": ["sm_90"], "devices":
          [{"name": "B200", "compute_capability": "10.0"}]}, "no code for B200"),
    ],
)  # fmt: skip
def test_torch_that_cannot_use_the_gpu_is_named(torch: dict[str, Any], said: str) -> None:
    (check,) = _torch_checks(torch, [Gpu(ordinal=0, model="B200")])
    assert not check["is_ok"]
    assert said in check["fix"]


@pytest.mark.usefixtures("gpu_host")
def test_gpus_are_listed_by_the_driver() -> None:
    gpus, check = probe_gpus()
    assert check["is_ok"]
    assert [(g.model, g.memory_bytes, g.compute_capability) for g in gpus] == [
        ("NVIDIA H100 80GB HBM3", 81559 << 20, "9.0")
    ]


@pytest.mark.usefixtures("gpu_host")
def test_hidden_gpu_is_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_targets()[0][0] == "NVIDIA H100 80GB HBM3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert find_targets()[0][0] == "cpu"


def test_broken_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    _, check = probe_gpus()
    assert not check["is_ok"]
    assert "mismatch" in check["found"]
    assert "Reboot" in check["fix"]


def test_unknown_value_of_a_gpu_is_none() -> None:
    gpu = parse_gpu("1, NVIDIA GB10, [N/A], 580.1, [N/A], 12.1")
    assert gpu is not None
    assert (gpu.ordinal, gpu.uuid, gpu.memory_bytes) == (1, None, None)


@pytest.mark.parametrize(
    ("params", "capabilities", "allowed"),
    [
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", True),
        ("RmProfilingAdminOnly: 1\n", "0000000000000000", False),
        ("RmProfilingAdminOnly: 1\n", "0000000000200000", True),
        ("RmProfilingAdminOnly: 1\n", "0000004000000000", True),
        ("", "0000000000000000", None),
    ],
)
def test_counter_permission(
    tmp_path: Path, params: str, capabilities: str, allowed: bool | None
) -> None:
    (tmp_path / "params").write_text(params)
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    found = counter_permission(tmp_path / "params", tmp_path / "status")
    assert found["counters_allowed"] is allowed


def test_clock_that_the_gpu_does_not_tell_is_absent() -> None:
    sample = parse_sample("1410, [N/A], 30, [Not Supported], 99, 0x0000000000000040")
    assert sample == {
        "sm_clock_mhz": 1410,
        "temperature_c": 30,
        "utilization_pct": 99,
        "throttle_mask": 0x40,
    }
    summary = summarise([sample])
    assert summary["is_throttled"] is True
    assert "power_w" not in summary


def test_clocks_while_the_program_only_starts_do_not_count() -> None:
    idle = {"sm_clock_mhz": 345.0, "power_w": 75.0, "throttle_mask": 0x1}
    busy = {"sm_clock_mhz": 1980.0, "power_w": 420.0, "throttle_mask": 0x0}

    summary = summarise([idle] * 15 + [busy] * 3)

    assert summary["sm_clock_mhz"] == {"min": 1980.0, "median": 1980.0, "max": 1980.0}
    assert (summary["num_samples"], summary["num_idle_samples"]) == (18, 15)
    assert summarise([idle])["sm_clock_mhz"]["median"] == 345.0


@pytest.mark.parametrize(
    ("acts", "said"),
    [
        ("exec sleep 60", "no answer within 2 s"),
        ("exec yes", "wrote more than"),
        ("sleep 60 & sleep 60", "no answer within 2 s"),
        ("trap '' TERM; while :; do sleep 1; done", "no answer within 2 s"),
    ],
)
def test_a_tool_that_does_not_end_is_ended_and_named(tmp_path: Path, acts: str, said: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n{acts}\n")
    tool.chmod(0o755)

    code, text = run_quietly([str(tool)], timeout_s=2)

    assert code is None
    assert said in text


@pytest.mark.parametrize(
    "leave",
    ["sleep 60 &\necho $! > MARK", "setsid sh -c 'echo $$ > MARK; exec sleep 60' &\nsleep 0.5"],
    ids=["in its session", "in a session of its own"],
)
def test_what_a_tool_leaves_running_neither_delays_nor_outlives_it(
    tmp_path: Path, leave: str
) -> None:
    tool, mark = tmp_path / "tool", tmp_path / "pid"
    tool.write_text(f"#!/bin/sh\n{leave}\necho version 1\n".replace("MARK", str(mark)))
    tool.chmod(0o755)

    assert run_quietly([str(tool)], timeout_s=20) == (0, "version 1\n")

    time.sleep(0.2)
    stat = Path(f"/proc/{mark.read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_a_tool_that_eats_memory_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MAX_PROBE_BYTES", 200 << 20)
    code = "import time; x = bytearray(b'1' * (400 << 20)); time.sleep(60)"

    assert run_quietly([sys.executable, "-c", code])[0] is None

"""A tool that reads a report may hang, fork, write without end or eat memory: it is ended."""

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.readers.nsys import report as nsys_report
from app.reading import file_job, read_jobs
from core.config import ReadingSettings
from core.errors import CaptureError
from tests.conftest import H100

REPORT = b"NVIDIA Tegra Profiler Report 2025@3@1@90-253135822126v0.\n\0\0binary"
LIMITS = ReadingSettings(
    memory_bytes=600 << 20, memory_per_byte=0, cpu_s=4, cpu_s_per_mb=0, disk_bytes=64 << 20
)
SOON = replace(LIMITS, cpu_s=2)
"""For a tool that takes all the time it is given; the reader itself takes up to one second."""
ACTS = {
    "burns": ("while :; do :; done", "CPU time"),
    "writes": ("exec yes", "memory"),
    "fills": ('exec cat /dev/zero > "$7"', "of disk"),
    "eats": ("exec python3 -c 'x = bytearray(b\"1\") * (4 << 30)'", "memory"),
    "multiplies": ("while :; do (while :; do :; done) & sleep 0.2; done", "CPU time"),
}


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an nsys on PATH, still to be written; it answers for its version."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setattr(nsys_report, "TOOL_GLOBS", ())
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "nsys"


def write(tool: Path, acts: str) -> None:
    version = "echo NVIDIA Nsight Systems version 2025.5.2.10-253135822126v0"
    tool.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then {version}; exit 0; fi\n{acts}\n')
    tool.chmod(0o755)


def read(folder: Path, limits: ReadingSettings = LIMITS) -> object:
    path = folder / "run.nsys-rep"
    path.write_bytes(REPORT)
    place = folder / "place"
    place.mkdir()
    surroundings = {"rules": None, "peaks": {}}
    with read_jobs([file_job([path])], surroundings, place, settings=limits) as (found,):
        pass
    assert list(place.iterdir()) == []
    return found


@pytest.mark.child
@pytest.mark.parametrize("name", ACTS)
def test_a_tool_that_goes_beyond_a_limit_is_ended_with_the_limit_named(
    tmp_path: Path, tool: Path, name: str
) -> None:
    acts, said = ACTS[name]
    write(tool, acts)

    found = read(tmp_path, SOON if said == "CPU time" else LIMITS)

    assert isinstance(found, CaptureError)
    assert said in str(found)
    assert "WARPBOARD_READ_" in str(found)
    assert "run.nsys-rep" in str(found)


@pytest.mark.child
def test_what_a_tool_leaves_running_ends_with_the_reading(tmp_path: Path, tool: Path) -> None:
    mark = f"9876.{os.getpid()}"
    capture = H100 / "nsys" / "decode_eager.sqlite"
    write(tool, f'setsid sleep {mark} >/dev/null 2>&1 &\nsleep 0.3\ncp "{capture}" "$7"')

    found = read(tmp_path)

    assert not isinstance(found, Exception), found
    time.sleep(0.2)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert f"sleep {mark}" not in listed.stdout

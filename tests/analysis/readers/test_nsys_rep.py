"""Reports go through the newest nsys; here a script on PATH that replays a real export."""

import pytest

from analysis.readers.nsys import report as nsys_rep
from analysis.readers.nsys.report import read_nsys_rep, report_version
from core.errors import CaptureError
from tests.analysis.readers.nsys_files import NSYS

MODERN = b"NVIDIA Tegra Profiler Report 2025@3@1@90-253135822126v0.\n\0\0binary"
OLD = b"NVIDIA Tegra Profiler Report 1.\n" + b"\0" * 5000 + b"2023.2.3.1001-32894139v0\0"


def report(folder, content=MODERN, name="run.nsys-rep"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.fixture
def install(tmp_path, monkeypatch):
    monkeypatch.setattr(nsys_rep, "TOOL_GLOBS", ())
    folders = []

    def add(version, export=f'cp "{NSYS}/decode_eager.sqlite" "$7"'):
        folder = tmp_path / f"tool_{version}"
        folder.mkdir()
        tool = folder / "nsys"
        answer = f'echo "NVIDIA Nsight Systems version {version}-253135822126v0"'
        tool.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then {answer}; exit 0; fi\n{export}\n'
        )
        tool.chmod(0o755)
        folders.append(str(folder))
        monkeypatch.setenv("PATH", ":".join([*folders, "/usr/bin", "/bin"]))

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return add


def test_version_is_in_the_header_or_deeper_in_old_reports(tmp_path):
    assert report_version(report(tmp_path)) == (2025, 3, 1, 90)
    assert report_version(report(tmp_path, OLD, "old.qdrep")) == (2023, 2, 3, 1001)


def test_the_newest_tool_exports_the_report(tmp_path, install):
    install("2023.2.3.1001", export="exit 1")
    install("2025.5.2.10")
    tables = read_nsys_rep(report(tmp_path))
    assert tables.summary["kernel_time_ns"] == 2_184_310
    assert tables.kind == "nsys_rep" and tables.path == tmp_path / "run.nsys-rep"
    assert tables.tool_version == "2025.3.1.90"
    assert tables.environment["nsys_export_version"] == "2025.5.2.10"
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["run.nsys-rep"]


def test_too_old_a_tool_is_not_tried_and_the_needed_one_named(tmp_path, install):
    install("2024.2.3.38", export="echo never > /dev/null; exit 9")
    with pytest.raises(CaptureError, match=r"2025\.3\.1\.90.*2024\.2\.3\.38.*2025\.3\.1 or newer"):
        read_nsys_rep(report(tmp_path))


def test_without_any_tool_the_needed_version_is_named(tmp_path, install):
    with pytest.raises(CaptureError, match=r"no nsys.*Install Nsight Systems 2025\.3\.1 or newer"):
        read_nsys_rep(report(tmp_path))


def test_an_export_that_leaves_no_file_is_an_error_whatever_the_code(tmp_path, install):
    install("2025.5.2.10", export='echo "Failed to read /home/someone/run.nsys-rep" >&2; exit 0')
    with pytest.raises(CaptureError, match="could not export it") as caught:
        read_nsys_rep(report(tmp_path))
    assert "someone" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("run.qdstrm", b"\0\1\2", "unfinished recording"),
        ("run.nsys-rep", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        ("run.nsys-rep", b"", "empty"),
        ("run.nsys-rep", b"PK\x03\x04", "does not start"),
    ],
)
def test_what_is_no_report_is_named(tmp_path, install, name, content, says):
    with pytest.raises(CaptureError, match=says):
        read_nsys_rep(report(tmp_path, content, name))

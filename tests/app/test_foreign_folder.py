"""Commands that are run in a folder of somebody else: none of its files act on them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.config import ROOT
from core.python import module_command, with_rooms
from tests.conftest import H100

SHADOWS = (
    *("app", "analysis", "captures", "core", "db", "worker", "workloads", "warpboard_marks"),
    *("json", "argparse", "pathlib", "sqlite3", "secrets", "logging", "venv", "ensurepip", "pip"),
    *("numpy", "pandas", "pyarrow", "plotly", "streamlit", "celery", "celeryconfig", "kombu"),
    *("torch", "triton", "nvtx", "ncu_report", "sitecustomize", "usercustomize", "encodings"),
)
EAGER = H100 / "nsys" / "decode_eager.sqlite"
SCRIPT = str(ROOT / "warpboard")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a folder whose modules, named as those that we use, write down that they ran."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    code = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + '\\n')\n"
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(code)
    return folder


def run_in(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    data = folder.parent / "data"
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env |= {"WARPBOARD_DATA": str(data), "WARPBOARD_PYTHON": sys.executable}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=240
    )


def what_ran(folder: Path) -> list[str]:
    ran = folder.parent / "ran"
    return sorted(set(ran.read_text().split())) if ran.exists() else []


@pytest.mark.parametrize("theirs", [":", ":/nowhere", "/nowhere:", "/nowhere:::/else", "::"])
def test_an_empty_part_of_pythonpath_is_not_the_current_folder(hostile: Path, theirs: str) -> None:
    done = run_in(hostile, "env", f"PYTHONPATH={theirs}", SCRIPT, "runs")

    assert done.returncode == 0, done.stderr
    assert what_ran(hostile) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["import", str(EAGER)], 0),
        (["runs"], 0),
        (["doctor"], None),
        (["profile", "--help"], 0),
        (["run", "--help"], 0),
        (["worker", "--help"], 0),
        (["run", "decode", "--gpu", "cpu", "--out", "here", "--set", "nothing=1"], 2),
        (["profile", "--passes", "clean", "--out", "there", "--", "/bin/true"], None),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_no_file_of_the_current_folder_is_imported(
    hostile: Path, words: list[str], code: int | None
) -> None:
    done = run_in(hostile, SCRIPT, *words)
    assert what_ran(hostile) == []
    assert "Traceback" not in done.stderr
    if code is not None:
        assert done.returncode == code, done.stderr


def test_the_folder_would_act_on_a_python_that_looks_in_it(hostile: Path) -> None:
    run_in(hostile, sys.executable, "-m", "json.tool", "--help")
    assert "json" in what_ran(hostile)


def test_every_process_of_ours_is_started_without_the_current_folder() -> None:
    command = module_command("json.tool", "--help")
    assert command[1:] == ["-P", "-m", "json.tool", "--help"]
    rooms = [ROOT / room for room in ("app", "analysis", "captures", "core", "db", "worker")]
    starts = ('sys.executable, "-m"', 'python, "-m"', 'python), "-m"')
    unsafe = [
        f"{path.relative_to(ROOT)}:{number}"
        for room in rooms
        for path in sorted(room.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(start in line for start in starts) and "self.python" not in line
    ]
    assert unsafe == []


def test_rooms_come_before_what_the_user_has_on_the_path() -> None:
    theirs = os.pathsep.join(["/a", "", "/b"])
    found = with_rooms({"PYTHONPATH": theirs, "OTHER": "1"})
    assert found == {"PYTHONPATH": os.pathsep.join([str(ROOT), "/a", "/b"]), "OTHER": "1"}

"""The wheel, installed into a fresh environment, does what a clone does."""

import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "tests" / "data" / "h100" / "nsys" / "decode_eager.sqlite"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel as CI does."""
    out = tmp_path_factory.mktemp("wheel")
    command = [str(ROOT / ".ci" / "wheel"), str(out), sys.executable]
    subprocess.run(command, check=True, timeout=200)
    [found] = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return the folder of programs of a fresh environment that has the wheel.

    What the dashboard needs beside is taken from the environment of the tests.
    """
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    [site] = (venv / "lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    subprocess.run(
        [sys.executable, "-m", "pip", f"--python={venv / 'bin' / 'python'}", "install", "-q",
         "--no-deps", "--no-index", str(wheel)],
        check=True, timeout=200,
    )  # fmt: skip
    return venv / "bin"


def call(command, *words, cwd, **env):
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(command), *map(str, words)], cwd=cwd, env=clean | env,
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_wheel_holds_pages_static_files_migrations_studies_published_and_demo_data(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = {n.removeprefix("warpboard/_rooms/") for n in names}
    tracked = subprocess.run(
        ["git", "ls-files", "app", "analysis", "core", "db", "worker", "workloads", "captures"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert set(tracked) - inside == set()
    assert "warpboard_marks.py" in names
    assert "warpboard_marks.h" in inside
    assert not {n.split("/")[0] for n in names} & {"app", "core", "db", "worker", "analysis"}


@pytest.mark.slow
def test_installed_command_starts_the_dashboard_imports_a_capture_and_opens_its_pages(
    installed, tmp_path
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = installed / "warpboard"
    code, _, errors = call(command, "--data", "data", "import", CAPTURE, cwd=tmp_path)
    assert code == 0, errors
    dashboard = subprocess.Popen(
        [str(command), "--data", "data", "up", "--no-demo", "--no-worker", "--port", str(port)],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        health = _answer(f"http://127.0.0.1:{port}/api/v1/health", dashboard)
        page = _answer(f"http://127.0.0.1:{port}/", dashboard)
    finally:
        dashboard.terminate()
        dashboard.wait(timeout=30)
    _, listed, _ = call(command, "--data", "data", "runs", "--json", cwd=tmp_path)

    assert json.loads(health)["status"] == "ok"
    assert b"<!doctype html" in page.lower()
    assert [run["status"] for run in json.loads(listed)["runs"]] == ["done"]


def test_installed_command_profiles_with_nothing_but_a_python(installed, tmp_path):
    out = tmp_path / "bundle"

    code, printed, errors = call(
        installed / "warpboard", "profile", "--out", out, "--passes", "clean", "--",
        sys.executable, "-c", "import sys; print(sys.path[1:3], 'core' in sys.modules)",
        cwd=tmp_path,
    )  # fmt: skip

    assert code == 0, errors
    assert json.loads((out / "manifest.json").read_text())["status"] == "done"
    assert "_rooms'" not in printed


def test_installed_command_stores_what_it_profiled_and_says_its_id(installed, tmp_path):
    command = installed / "warpboard"

    code, printed, errors = call(
        command, "--data", "data", "profile", "--json", "--passes", "clean", "--",
        sys.executable, "-c", "print('hello')", cwd=tmp_path,
    )  # fmt: skip
    _, listed, _ = call(command, "--data", "data", "runs", "--json", cwd=tmp_path)

    assert code == 0, errors
    assert [run["id"] for run in json.loads(listed)["runs"]] == [json.loads(printed)["run"]]
    assert "hello" in errors


def test_marks_cost_nothing_and_need_nothing_without_a_profiler(installed, tmp_path):
    script = (
        "import sys; from warpboard_marks import phase, step\n"
        "with step():\n  with phase('a'): print('ran', 'torch' in sys.modules)\n"
    )

    code, printed, errors = call(installed / "python", "-c", script, cwd=tmp_path)

    assert (code, printed.strip()) == (0, "ran False"), errors


def _answer(url, process, limit_s=100.0):
    deadline = time.monotonic() + limit_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return answer.read()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.3)

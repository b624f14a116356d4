"""The bootstrap script and the choice of environments, with stand-ins for the host's Pythons."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import environments
from core.config import ROOT


@pytest.mark.parametrize(
    ("chosen", "gpu", "expected"),
    [
        ("", False, "torch==2.13.0+cpu"),
        ("", True, "torch==2.13.0"),
        ("cpu", True, "torch==2.13.0+cpu"),
        ("cuda", False, "torch==2.13.0"),
        ("torch==2.9.1", True, "torch==2.9.1"),
    ],
)
def test_torch_follows_the_variable_then_the_host(
    monkeypatch: pytest.MonkeyPatch, chosen: str, gpu: bool, expected: str
) -> None:
    monkeypatch.setenv("WARPBOARD_TORCH", chosen)
    monkeypatch.setattr(environments, "has_gpu", lambda: gpu)

    assert environments.torch_choice() == expected


def test_named_python_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPBOARD_PYTHON", "/opt/python/bin/python3")

    assert environments.python_for("worker") == Path("/opt/python/bin/python3")
    assert environments.python_for("run") == Path("/opt/python/bin/python3")


def test_host_python_with_torch_runs_jobs_without_an_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = tmp_path / "python3"
    host.write_text("#!/bin/sh\nexit 0\n")
    host.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("WARPBOARD_PYTHON", raising=False)

    assert environments.python_for("run") == host


def test_environment_is_made_once_and_again_when_its_lock_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[list[str]] = []

    def make(folder: Path, locks: list[str], *_: object) -> None:
        made.append(locks)
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "bin" / "python").touch()

    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(environments, "_make", make)
    (tmp_path / "app.lock").write_text("a==1")
    for _ in range(2):
        environments.ensure(".venv", ["app"], None)
    (tmp_path / "app.lock").write_text("a==2")
    environments.ensure(".venv", ["app"], None)

    assert made == [["app"], ["app"]]


def test_failed_install_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'ERROR: No matching distribution' >&2\nexit 1\n")
    python.chmod(0o755)

    with pytest.raises(environments.EnvironmentFailure, match="No matching distribution") as caught:
        environments._pip(tmp_path, ["-r", "x.lock"])

    assert "network" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_install_says_that_it_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    code = f"while ! test -e {done}; do sleep 0.01; done"
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if "collecting pandas" in text:
            done.touch()

    monkeypatch.setattr(environments, "STILL_S", 0.01)
    monkeypatch.setattr(environments, "say", tell)
    environments._run(["sh", "-c", f"echo Collecting pandas; {code}"], "pip", "fix")

    assert "collecting pandas" in told[-1]


@pytest.mark.parametrize("keeps_nothing", [True, False])
def test_a_new_environment_is_compiled_at_once_where_python_keeps_nothing_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_nothing: bool
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1" if keeps_nothing else "")
    clone, folder = tmp_path / "clone", tmp_path / "venv"
    for name in ("clone/room/__init__.py", "clone/room/page.py", "venv/lib/python3/dep.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(environments, "ROOT", clone)

    environments._make(folder, [], None, None)

    compiled = {p.name.split(".")[0] for p in tmp_path.rglob("*.pyc")}
    assert compiled == ({"__init__", "page", "dep"} if keeps_nothing else set())


def test_locks_hold_no_torch_and_no_host() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        text = lock.read_text()
        assert not any(line.startswith("torch==") for line in text.splitlines())
        assert "://" not in text


def test_dashboard_has_no_torch_and_worker_no_pandas() -> None:
    worker = (ROOT / "requirements" / "worker.lock").read_text()

    assert not {"pandas", "numpy", "streamlit"} & {w.split("==")[0] for w in worker.splitlines()}


def run_script(script: Path, path: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        [str(script), *words], env=environment, capture_output=True, text=True, cwd="/", timeout=60
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script alone: no environment is there yet."""
    folder = tmp_path / "checkout"
    (folder / "requirements").mkdir(parents=True)
    (folder / "requirements" / "app.lock").touch()
    (folder / "warpboard").write_bytes((ROOT / "warpboard").read_bytes())
    (folder / "warpboard").chmod(0o755)
    return folder / "warpboard"


def stand_in(folder: Path, name: str, text: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    for tool in ("dirname", "readlink", "cat", "touch"):
        if not (folder / tool).exists():
            (folder / tool).symlink_to(f"/usr/bin/{tool}")
    return str(folder)


def test_no_python_is_said_with_the_remedy(checkout: Path, tmp_path: Path) -> None:
    path = stand_in(tmp_path / "bin", "nothing", "")

    done = run_script(checkout, path, "runs")

    assert done.returncode == 3
    assert done.stderr.strip().splitlines() == [done.stderr.strip()]
    assert "apt-get install python3" in done.stderr


def test_old_python_is_said_with_its_version(checkout: Path, tmp_path: Path) -> None:
    old = 'case "$3" in *exit*) exit 1;; *) echo 3.9;; esac'
    path = stand_in(tmp_path / "bin", "python3", old)

    done = run_script(checkout, path, "runs")

    assert "Python 3.9 is too old" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_missing_venv_module_is_said_with_the_package(checkout: Path, tmp_path: Path) -> None:
    bare = 'case "$3" in *ensurepip*) exit 1;; *print*) echo 3.11;; *) exit 0;; esac'
    path = stand_in(tmp_path / "bin", "python3", bare)

    done = run_script(checkout, path, "runs")

    assert "python3-venv" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_script_works_through_a_symlink_from_anywhere(checkout: Path, tmp_path: Path) -> None:
    for room in ("app", "captures", "core", "db", "analysis", "workloads", "worker"):
        (checkout.parent / room).symlink_to(ROOT / room)
    made = checkout.parent / ".venv"  # an environment that is there: to make one takes a minute
    stand_in(made, "installed.txt", "")
    stand_in(made / "bin", "python", f'exec {sys.executable} "$@"')
    link = tmp_path / "wb"
    link.symlink_to(checkout)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"

    done = run_script(link, path, "run", "--help")

    assert done.returncode == 0, done.stderr
    assert "workload" in done.stdout


def test_a_step_of_pip_is_told_in_a_few_words() -> None:
    told = {
        "Installing collected packages: mpmath, sympy, torch": "installing 3 packages",
        "  Downloading https://host/a/b/torch-2.13.0-cp311.whl (190 MB)": (
            "downloading torch-2.13.0-cp311.whl (190 MB)"
        ),
        "Collecting celery==5.7.0": "collecting celery==5.7.0",
    }
    assert {line: environments._brief(line) for line in told} == told

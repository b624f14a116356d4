"""Fixtures that every room may use: a data directory, its database, and runs to put into it."""

import fcntl
import gc
import importlib
import importlib.metadata
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from analysis.tables import CaptureWarning
from app.demo.load import CAPTURES, load_demo, unpack
from app.imports import Imported
from captures.sandbox import run_limited
from core.config import DataDir
from core.config import data_dir as make_data_dir
from core.spec import JobSpec
from db.connection import opened
from db.runs import insert_run

ROOT = Path(__file__).resolve().parents[1]
H100 = Path(__file__).parent / "data" / "h100"
SMALL_TRACE = Path(__file__).parent / "data" / "public" / "alexnet_forward.trace.json.gz"
"""A real trace that is read in a tenth of the time of the training step's."""

# Several programs compute at a time: a second thread of each would wait by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Some hundred processes are started: let Python keep what it compiled for the next one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


# Looking for garbage among the modules and tests that stay to the end costs more than it frees.
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def _readers_here() -> Iterator[None]:
    """Read captures in the test's own process: a child's start takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.reading.run_limited", run_here)
        yield


@pytest.fixture(autouse=True)
def _readers_in_a_child(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test marked `child` has captures read as the product does."""
    if request.node.get_closest_marker("child") is not None:
        monkeypatch.setattr("app.reading.run_limited", run_limited)


def run_here(module: str, request: dict[str, Any], scratch: Path, *_: Any, **__: Any) -> None:
    importlib.import_module(module).main(request, scratch)


def pytest_report_header() -> str:
    """Say which versions ran, and which tools were there."""
    versions = [f"sqlite {sqlite3.sqlite_version}"]
    for name in ("streamlit", "celery", "pandas", "torch", "ncu-report"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    tools = [t for t in ("chromium", "redis-server", "g++", "nsys", "ncu") if shutil.which(t)]
    return f"{', '.join(versions)}; tools: {', '.join(tools) or 'none'}"


SLOW_FIRST = (
    "tests/browser/jobs/",
    "tests/browser/pages/",
    "tests/app/test_stack.py",
    "tests/test_results.py",
    "tests/worker/",
    "tests/workloads/",
    "tests/app/",
)
JOURNEYS = "tests/browser/"
"""The files of each folder in here run in one process."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file in one process, and a folder of journeys: they share a dashboard."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrDashboard(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return str(Path(file).parent) if file.startswith(JOURNEYS) else file

    return ByFileOrDashboard(config, log)


@cache
def _step_back() -> None:
    os.nice(3)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Of several processes let those with journeys go first: theirs is the longest way."""
    if "PYTEST_XDIST_WORKER" in os.environ and not item.nodeid.startswith(JOURNEYS):
        _step_back()


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "run files, and the tests of each file, in a random order: the same for the same seed"
    parser.addoption("--shuffle", type=int, metavar="SEED", help=words)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with what takes longest."""

    def place(item: pytest.Item) -> int:
        found = (n for n, start in enumerate(SLOW_FIRST) if item.nodeid.startswith(start))
        return next(found, len(SLOW_FIRST))

    items.sort(key=place)
    seed = config.getoption("--shuffle")
    if seed is not None:
        items[:] = _shuffled(items, seed)


def _shuffled(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return the tests in a random order; the journeys, which take longest, stay in front."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = sorted(files)
    rng = random.Random(seed)
    rng.shuffle(order)
    for path in order:
        rng.shuffle(files[path])
    order.sort(key=lambda path: JOURNEYS not in f"{path}")
    return [item for path in order for item in files[path]]


@pytest.fixture(scope="session")
def example_captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the captures that `demo.toml` names: read them, never write there."""
    return unpack(CAPTURES, tmp_path_factory.mktemp("example-captures"))


@pytest.fixture(scope="session")
def example_data(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A data directory with the example runs and `loaded.json`, what each import answered.

    Made once for all processes of a test session: copy it, never write to it.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "example-data"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "loaded.json").exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("app.reading.run_limited", run_limited)
                loaded = [r.as_dict() for r in load_demo(make_data_dir(folder), lambda name: None)]
            (folder / "loaded.json").write_text(json.dumps(loaded))
    return folder


def copy_examples_to(source: Path, folder: Path) -> None:
    """Copy a data directory; its stored files, which nothing changes, are there under two names."""

    def link_or_copy(path: str, target: str) -> None:
        stored = Path(path).relative_to(source).parts[0] in ("captures", "spans")
        (os.link if stored else shutil.copy2)(path, target)

    shutil.copytree(source, folder, dirs_exist_ok=True, copy_function=link_or_copy)


def imported_of(document: dict[str, Any]) -> Imported:
    """Return the outcome of an import that `as_dict` told."""
    warnings = tuple(CaptureWarning(**warning) for warning in document["warnings"])
    return Imported(**document | {"warnings": warnings, "removed": tuple(document["removed"])})


@pytest.fixture(scope="session")
def copy_examples(example_data: Path) -> Callable[..., list[Any]]:
    """Return what stands in for `load_demo`: it takes the example runs as the session read them."""

    def copied(data: DataDir, tell: object) -> list[Any]:
        copy_examples_to(example_data, data.root)
        loaded = json.loads((data.root / "loaded.json").read_text())
        return [imported_of(document) for document in loaded]

    return copied


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """A Python for programs that import PyTorch: it forks them from one that has imported it.

    Take `sys.executable` where the import itself, signals or limits are what a test is about.
    """
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent
    path, address = base / "warm-python", base / "warm.socket"
    client = Path(__file__).parent / "warm" / "client.py"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -ISB {client} {address} "$@"\n')
    path.chmod(0o755)
    server, holder = None, socket.socket(socket.AF_UNIX)
    with (base / "warm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            holder.connect(str(address))
        except OSError:
            address.unlink(missing_ok=True)
            server = start_warm_server(address, path)
            holder.connect(str(address))
    yield str(path)
    holder.close()
    if server is not None:
        server.wait(600)  # it ends when no process of the session holds it


def start_warm_server(address: Path, python: Path) -> "subprocess.Popen[bytes]":
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(64)
        number = listener.fileno()
        words = [sys.executable, "-m", "tests.warm.server", str(number), str(python)]
        # The working folder is found by -m alone: programs see what their PYTHONPATH names.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.Popen(words, cwd=ROOT, env=env, pass_fds=[number])


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    """Return an empty data directory."""
    return DataDir(root=tmp_path / "data").ensure()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with all migrations: copy it, never write to it."""
    data = DataDir(root=tmp_path_factory.mktemp("migrated")).ensure()
    with opened(data.db_path):
        pass
    return data.db_path


@pytest.fixture
def db(data_dir: DataDir, migrated: Path) -> Iterator[Database]:
    """Return the migrated database of `data_dir`."""
    if not data_dir.db_path.exists():
        shutil.copy(migrated, data_dir.db_path)
    with opened(data_dir.db_path) as database:
        yield database


@pytest.fixture
def make_run(db: Database) -> Callable[..., str]:
    """Return a maker of queued runs: `make_run(name="a", compile="none", gpu="cpu")` -> id."""

    def make(name: str = "a run", gpu: str = "cpu", **params: str | int | float | bool) -> str:
        spec = JobSpec(workload="decode", params=params, gpu=gpu)
        return insert_run(db, spec=spec, name=name)

    return make

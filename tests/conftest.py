"""Fixtures that every room may use: a data directory, its database, and runs to put into it."""

import importlib.metadata
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from core.config import DataDir
from core.spec import JobSpec
from db.connection import opened
from db.runs import insert_run

H100 = Path(__file__).parent / "data" / "h100"

# Several programs compute at a time: a second thread of each would wait by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest files, so that none of them is left alone at the end."""
    slow = ("tests/browser/", "tests/app/test_stack.py", "tests/workloads/")
    items.sort(key=lambda item: not item.nodeid.startswith(slow))


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    """Return an empty data directory."""
    return DataDir(root=tmp_path / "data").ensure()


@pytest.fixture
def db(data_dir: DataDir) -> Iterator[Database]:
    """Return the migrated database of `data_dir`."""
    with opened(data_dir.db_path) as database:
        yield database


@pytest.fixture
def make_run(db: Database) -> Callable[..., str]:
    """Return a maker of queued runs: `make_run(name="a", compile="none", gpu="cpu")` -> id."""

    def make(name: str = "a run", gpu: str = "cpu", **params: str | int | float | bool) -> str:
        spec = JobSpec(workload="decode", params=params, gpu=gpu)
        return insert_run(db, spec=spec, name=name)

    return make

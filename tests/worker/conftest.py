"""Fixtures of the worker's tests: tools on PATH that replay real captures, a small dashboard."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.worker.dashboard import Dashboard, serve
from worker import tools

FAKE_TOOLS = Path(__file__).resolve().parents[1] / "fake_tools"


@pytest.fixture(scope="session", autouse=True)
def python_of_the_tools() -> Iterator[None]:
    """Let the tools find this Python first: a version manager's stand-in costs more than a tool."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield


@pytest.fixture
def fake_python() -> str:
    return str(FAKE_TOOLS / "fake_python")


@pytest.fixture
def gpu_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host with one H100 and both profilers, as far as programs on PATH can tell."""
    with tools_on_path(monkeypatch):
        yield


@contextmanager
def tools_on_path(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the stand-ins of the profilers and of nvidia-smi in front on PATH."""
    patch.setenv("PATH", f"{FAKE_TOOLS}{os.pathsep}{os.environ['PATH']}")
    _forget_tools()
    yield
    _forget_tools()


def _forget_tools() -> None:
    tools.find_nsys.cache_clear()
    tools.find_ncu.cache_clear()


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    with serve() as running:
        yield running

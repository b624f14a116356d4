"""Fixtures: the command line in this process, and the API on a real server."""

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import plotly.graph_objects as go
import pytest
import uvicorn

from app.api import auth
from app.api.app import make_api
from app.charts.base import Chart
from app.cli.main import main
from app.imports import import_paths
from core.config import DataDir


class Cli:
    """The command line on one data directory."""

    def __init__(self, data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
        self._data = str(data_dir.root)
        self._capsys = capsys
        self.err = ""
        self.out = ""

    def __call__(self, *words: str) -> int:
        try:
            code = main(["--data", self._data, *words])
        except SystemExit as stopped:  # argparse
            code = int(stopped.code or 0)
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.out + self.err
        return code

    def json(self, *words: str) -> Any:
        assert self(*words, "--json") == 0, self.err
        return json.loads(self.out)


DECODES = ("decode_eager", "decode_reduce_overhead")


def with_decodes(root: Path, captures: Path) -> DataDir:
    """Make a data directory of two example runs, a decode step as it is and with CUDA graphs."""
    made = DataDir(root=root).ensure()
    for name in DECODES:
        import_paths(made, [captures / "h200" / name], name=name)
    return made


@pytest.fixture(scope="session", autouse=True)
def no_search_for_components() -> Iterator[None]:
    """Keep each AppTest from reading all installed packages' metadata, 0.2 s of CPU a test."""
    with pytest.MonkeyPatch.context() as patch:
        name = "streamlit.components.v2.component_manager.BidiComponentManager"
        patch.setattr(f"{name}.discover_and_register_components", lambda self, **options: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def plotly_checks_charts() -> Iterator[None]:
    """Have plotly check every chart that a test draws: the pages go without, it takes long."""

    def checked(chart: Chart) -> go.Figure:
        return go.Figure({"data": chart.data, "layout": chart.layout})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chart, "to_plotly", checked)
        yield


@pytest.fixture
def cli(data_dir: DataDir, migrated: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    if not data_dir.db_path.exists():
        shutil.copy(migrated, data_dir.db_path)
    return Cli(data_dir, capsys)


@pytest.fixture
def api(data_dir: DataDir, migrated: Path) -> Iterator[httpx.Client]:
    """Serve the API of `data_dir` and return a client with this host's token."""
    if not data_dir.db_path.exists():
        shutil.copy(migrated, data_dir.db_path)
    auth._failures.clear()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(make_api(data_dir), log_level="warning")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1"
        token = data_dir.token_path.read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
            yield client
        server.should_exit = True
        thread.join()

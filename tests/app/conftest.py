"""The command line as a fixture: run in this process, on a data directory of its own."""

import json
from typing import Any

import pytest

from app.cli.main import main
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


@pytest.fixture
def cli(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(data_dir, capsys)

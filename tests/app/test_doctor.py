"""`doctor` before and after the worker's environment exists; what it says of what it measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import doctor


def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_made: bool) -> dict[str, Any]:
    """Return the torch check where the worker's Python has no torch, or is not there yet."""
    python = tmp_path / "python"
    torch = {"name": "torch", "is_ok": False, "found": "No module named 'torch'", "fix": "Install"}
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'checks': [torch]}).replace(chr(39), '')}'\n")
    python.chmod(0o755)
    monkeypatch.setattr("app.environments.probe_python", lambda: str(python))
    made = python if is_made else None
    monkeypatch.setattr("app.environments.made_worker_python", lambda: made)
    (check,) = doctor._worker_probe()["checks"]
    return dict(check)


@pytest.mark.parametrize(("choice", "shown"), [("cpu", "+cpu"), ("torch==2.9.1", "torch==2.9.1")])
def test_torch_that_the_first_job_installs_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str, shown: str
) -> None:
    monkeypatch.setenv("WARPBOARD_TORCH", choice)
    check = probe(tmp_path, monkeypatch, is_made=False)
    assert check["is_ok"]
    assert shown in check["found"]
    assert "WARPBOARD_TORCH" in check["fix"]


def test_worker_environment_without_torch_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = probe(tmp_path, monkeypatch, is_made=True)
    assert not check["is_ok"]
    assert check["fix"] == "Install"

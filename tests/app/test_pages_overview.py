"""What the Overview says while the embedded worker is prepared, and how much is here."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from app import stack
from app.ui import overview_view
from app.ui.overview_view import model_lines
from core.config import DataDir

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataDir]:
    """Hold the data directory's lock as a running `up` does."""
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    lock = stack._locked(data_dir)
    yield data_dir
    lock.close()


def overview(data: DataDir, note: str) -> AppTest:
    data.stack_path.write_text(json.dumps({"worker": note}))
    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=60).run()
    assert not at.exception
    return at


@pytest.mark.parametrize("note", ["making .venv-worker", "installing 31 packages, 20 s"])
def test_the_step_of_the_worker_s_environment_is_shown(served: DataDir, note: str) -> None:
    said = overview(served, note).info[0].value.replace("\\", "")
    assert said == f"Preparing the worker: {note}. Jobs wait until it is ready."


def test_a_worker_that_cannot_be_made_is_an_error_with_its_reason(served: DataDir) -> None:
    at = overview(served, "failed: pip could not install torch. Check the network")
    assert "Check the network" in at.error[0].value and not at.info


@pytest.mark.parametrize("note", ["running", "off"])
def test_nothing_is_said_of_a_worker_that_runs(served: DataDir, note: str) -> None:
    at = overview(served, note)
    assert not at.info and not at.error


def test_nothing_is_said_where_no_stack_serves_the_data(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    assert not overview(data_dir, "making .venv-worker").info


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ([], "no worker has registered"),
        ([("H100", None, False)], "no worker has registered"),
        ([("H100", None, False), ("cpu", "w1", True)], "CPU worker online"),
        ([("cpu", "w1", False)], "CPU worker offline"),
        ([("H100", "w1", True), ("H200", "w2", False), ("cpu", "w3", True)], "1 of 2 GPUs online"),
    ],
)
def test_a_gpu_that_only_files_name_is_none_that_could_be_online(
    gpus: list[tuple[str, str | None, bool]], said: str
) -> None:
    frame = pd.DataFrame(gpus, columns=["model", "worker_id", "is_online"])
    assert overview_view._served(frame) == said


def test_gpus_of_one_model_are_told_together() -> None:
    def row(worker: str | None, host: str | None, *, is_online: bool) -> dict[str, object]:
        known: dict[str, object] = {"peaks": {}, "noise_floor_frac": None, "info": {}}
        return {"worker_id": worker, "host": host, "is_online": is_online, **known}

    two = [row("w1", "a", is_online=True), row("w2", "b", is_online=False)]
    files = [row(None, None, is_online=False)] * 3
    assert model_lines([*two, *files]) == ("1 of 2 online", "a, b \u00b7 peaks measured on none")
    assert model_lines(files) == ("from files", "3 cards in captures \u00b7 peaks measured on none")
    assert model_lines(two[:1])[0] == "online" and model_lines(two[1:])[0] == "offline"

"""Cards of GPUs: one that cannot be drawn fails alone, and a record can be removed."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.config import DataDir, data_dir
from core.gpus import imported_gpu
from core.spec import JobSpec
from db.connection import opened
from db.devices import devices
from db.runs import insert_run
from db.workers import register_worker, store_gpu, worker_stopped
from tests.app.test_pages import open_page

GOOD = "NVIDIA H200"


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    """A data folder with a sound GPU and one whose stored record is nonsense."""
    data = data_dir(str(tmp_path / "data"))
    with opened(data.ensure().db_path) as db:
        gpus = [{"model": GOOD, "uuid": "GPU-good"}, {"model": "Broken", "uuid": "GPU-bad"}]
        register_worker(db, "w1", version="1", queues=(), gpus=gpus, info={})
        db.conn.execute(
            """UPDATE gpus SET info = '{"noise_floors": "abc", "tools": 7}' WHERE id = 'GPU-bad'"""
        )
        insert_run(db, spec=JobSpec(workload="decode"), name="a run")
        worker_stopped(db, "w1")
    return data


def text_of(at: AppTest) -> str:
    return "\n".join(
        [*(str(e.proto.body) for e in at.get("html")), *(str(e.value) for e in at.caption)]
    )


@pytest.mark.parametrize("page", ["gpus", "overview"])
def test_a_card_that_cannot_be_drawn_fails_alone(
    data: DataDir, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    at = open_page(monkeypatch, str(data.root), page)

    assert "H200" in text_of(at)
    assert "Broken: cannot be shown" in text_of(at)
    assert not at.error


def test_record_of_a_gpu_can_be_removed(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    at = open_page(monkeypatch, str(data.root), "gpus")

    at.button(key="remove GPU-bad").click().run()

    with opened(data.db_path) as db:
        assert [device.id for device in devices(db)] == ["GPU-good"]


def test_cards_that_files_do_not_tell_apart_are_said_to_be_maybe_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_dir(str(tmp_path / "data"))
    with opened(data.ensure().db_path) as db:
        for told in ({"bus": "0000:57:00.0"}, {"bus": "0000:58:00.0"}, {"ordinal": 1}):
            gpu = {"model": GOOD, **told}
            store_gpu(db, str(imported_gpu(gpu)), None, gpu)

    text = text_of(open_page(monkeypatch, str(data.root), "gpus"))
    shown = text.replace("\\", "").replace("\u2060", "")

    assert shown.count("may come from several cards") == 3
    assert "It may be one card with GPU 1." in shown
    assert "It may be one card with bus 0000:57:00.0 or bus 0000:58:00.0." in shown

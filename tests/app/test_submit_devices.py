"""The Submit page offers the physical GPUs of a model that has several, and binds the job."""

import pytest

from core.config import DataDir
from db.connection import opened
from db.runs import list_rows
from db.workers import register_worker
from tests.app.test_pages import open_page

H100 = "NVIDIA H100 80GB HBM3"


def test_one_of_several_gpus_can_be_chosen(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [{"model": H100, "uuid": f"GPU-{i}", "ordinal": i} for i in range(2)]
    with opened(data_dir.db_path) as db:
        info = {"host_label": "node1"}
        register_worker(db, "w1", version="0.1.0", queues=[], gpus=gpus, info=info)
    at = open_page(monkeypatch, str(data_dir.root), "submit", workload="decode")
    choice = at.multiselect(key="gpus")
    assert list(choice.options) == [H100, f"{H100}@node1:0", f"{H100}@node1:1", "cpu"]
    choice.set_value([f"{H100}@node1:1"]).run()
    assert f"--gpu '{H100}@node1:1'" in at.code[0].value
    next(b for b in at.button if b.label == "Submit 1 job").click().run()
    with opened(data_dir.db_path) as db:
        (row,) = list_rows(db)
    assert (row["gpu_model"], row["device_id"]) == (H100, "GPU-1")

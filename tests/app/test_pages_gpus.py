"""The GPUs page: a card a physical GPU by model, hosts told apart, what to fix on each."""

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.config import DataDir
from core.spec import JobSpec
from db.connection import opened
from db.runs import insert_run
from db.workers import register_worker, store_gpu
from tests.app.test_pages import open_page

FAULT = {
    "name": "counter_permission",
    "is_ok": False,
    "found": "for administrators only",
    "fix": "Load the driver with NVreg_RestrictProfilingToAdminUsers=0",
}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """Two hosts with two GPUs of one model each, and two hosts with a CPU alone."""
    with opened(DataDir(root=tmp_path).ensure().db_path) as db:
        for host in ("node1", "node2"):
            gpus = [
                {"model": "NVIDIA H100", "uuid": f"GPU-{host}-{i}", "ordinal": i} for i in (0, 1)
            ]
            info = {"host_label": host, "checks": [FAULT] if host == "node2" else []}
            register_worker(db, f"w-{host}", version="1", queues=(), gpus=gpus, info=info)
        for host in ("laptop", "ci"):
            info = {"host_label": host}
            register_worker(
                db, f"w-{host}", version="1", queues=(), gpus=[{"model": "cpu"}], info=info
            )
    return open_page(monkeypatch, str(tmp_path), "gpus")


def html_of(at: AppTest) -> str:
    return "\n".join(str(e.proto.body) for e in at.get("html"))


def headings(at: AppTest, level: int) -> list[str]:
    found = re.findall(rf"<h{level}[^>]*>(.*?)</h{level}>", html_of(at), re.DOTALL)
    return [re.sub("<[^>]+>", "", text).strip() for text in found]


def test_each_physical_gpu_is_a_card_with_its_host_index_and_uuid(page: AppTest) -> None:
    cards = headings(page, 3)
    wanted = {f"{host}, GPU {i} online" for host in ("node1", "node2") for i in (0, 1)}
    assert wanted <= set(cards)
    assert all(f"GPU-{host}-{i}" in html_of(page) for host in ("node1", "node2") for i in (0, 1))


def test_models_are_headings_over_their_cards_the_cpu_last(page: AppTest) -> None:
    assert headings(page, 2) == ["H100", "CPU"]


def test_two_cpu_hosts_are_told_apart(page: AppTest) -> None:
    assert {"ci online", "laptop online"} <= set(headings(page, 3))


def test_a_host_that_lacks_a_permission_says_what_to_do(page: AppTest) -> None:
    html = html_of(page)
    assert FAULT["found"] in html and FAULT["fix"] in html
    assert html.count('class="wb-fault"') == 1


def test_the_way_to_another_host_is_on_the_page(page: AppTest) -> None:
    codes = "\n".join(code.value for code in page.code)
    assert "./warpboard token NAME_OF_THE_GPU_HOST" in codes
    assert "./warpboard worker --dashboard http://" in codes
    assert "DASHBOARD_HOST" not in codes


def test_cards_that_only_captures_name_are_one_tile_of_the_overview_and_fold_on_their_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = {"noise_floor_frac": 0.02}
    with opened(DataDir(root=tmp_path).ensure().db_path) as db:
        for i in range(3):
            record = {"model": "NVIDIA H100", "uuid": f"D-{i}"} | (floor if i == 0 else {})
            store_gpu(db, f"import/D-{i}", None, record)
        spec = JobSpec(workload="gemm", params={}, gpu="NVIDIA H100")
        insert_run(db, spec=spec, name="a job")
        shown = open_page(monkeypatch, str(tmp_path), "gpus")
        overview = html_of(open_page(monkeypatch, str(tmp_path), "overview"))

    assert [e.label for e in shown.expander if "more" in e.label] == [
        "2 more cards that captures name"
    ]
    assert overview.count("from files") == 1 and "3 cards in captures" in overview

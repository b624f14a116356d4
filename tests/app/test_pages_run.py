"""The run page with all its tabs, for each kind of example run: nothing raises or is an error."""

import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.config import data_dir
from db.connection import opened
from db.runs import list_runs


def whole_page(run_id: str) -> None:
    """Draw one run as the page does, with every tab open at once; its links lead nowhere."""
    from unittest.mock import patch

    import streamlit as st

    from app.ui import data, run_head, run_tabs, widgets

    link = "streamlit.delta_generator.DeltaGenerator.page_link"
    with widgets.page_border(), patch(link), patch("streamlit.page_link"):
        view = data.fetch_view(run_id)
        run_head.title(view)
        run_head.answer(view)
        run_head.headline(view)
        run_head.warnings(view)
        for draw in run_tabs.TABS.values():
            with st.container(key=draw.__name__):
                draw(view)
        run_head.notes(view)


@pytest.fixture(scope="module")
def demo(example_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "data"
    shutil.copytree(example_data, folder)
    return folder


def one_of_each_kind(folder: Path) -> list[str]:
    """Return every run but those of the matrix, and of those one of each kind."""
    with opened(data_dir(str(folder)).db_path, is_reader=True) as db:
        others = list_runs(db, "-tag:matrix", limit=500)
        matrix = list_runs(db, "tag:matrix", limit=500)
    kinds = matrix.assign(profilers=matrix["profilers"].astype(str)).drop_duplicates(
        ["workload", "gpu_model", "status", "profilers"]
    )
    return [*others["id"], *kinds["id"]]


def shown(run_id: str) -> AppTest:
    at = AppTest.from_function(whole_page, default_timeout=60, kwargs={"run_id": run_id}).run()
    assert not at.exception
    return at


def test_every_tab_of_every_kind_of_example_run_is_drawn(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", str(demo))
    pages = {run_id: shown(run_id) for run_id in one_of_each_kind(demo)}
    assert len(pages) > 30
    assert {i: [e.value for e in at.error] for i, at in pages.items() if at.error} == {}

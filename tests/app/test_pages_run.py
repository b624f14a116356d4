"""The run page with all its tabs, for every example run: nothing raises, nothing is an error."""

import json
import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest


def whole_page(run_id: str) -> None:
    """Draw one run as the page does, with every tab open at once."""
    import streamlit as st

    from app.ui import data, run_head, run_tabs, widgets

    with widgets.page_border():
        view = data.fetch_view(run_id)
        run_head.title(view)
        run_head.answer(view)
        run_head.headline(view)
        run_head.warnings(view)
        for name in run_tabs.__all__:
            with st.container(key=name):
                getattr(run_tabs, name)(view)
        run_head.notes(view)


@pytest.fixture(scope="module")
def demo(
    example_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("demo") / "data"
    shutil.copytree(example_data, folder)
    loaded = json.loads((folder / "loaded.json").read_text())
    return folder, {str(i): run["run_id"] for i, run in enumerate(loaded)}


def shown(run_id: str) -> AppTest:
    at = AppTest.from_function(whole_page, default_timeout=60, kwargs={"run_id": run_id}).run()
    assert not at.exception
    return at


def test_every_tab_of_every_example_run_is_drawn(
    demo: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ids = demo
    monkeypatch.setenv("WARPBOARD_DATA", str(folder))
    pages = {run_id: shown(run_id) for run_id in ids.values()}
    assert len(pages) >= 6
    assert {i: [e.value for e in at.error] for i, at in pages.items() if at.error} == {}

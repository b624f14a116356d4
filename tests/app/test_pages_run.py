"""The run page with all its tabs, for each kind of example run: nothing raises or is an error."""

import sqlite3
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.imports import import_paths
from core.config import DataDir
from tests.conftest import H100, copy_examples_to


def whole_page(run_id: str) -> None:
    """Draw one run as the page does, with every tab open at once; its links lead nowhere."""
    from unittest.mock import patch

    import streamlit as st

    from app.ui import data, widgets
    from app.ui.run import head, tabs

    link = "streamlit.delta_generator.DeltaGenerator.page_link"
    with widgets.page_border(), patch(link), patch("streamlit.page_link"):
        view = data.fetch_view(run_id)
        head.title(view)
        head.answer(view)
        head.headline(view)
        head.warnings(view)
        for draw in tabs.TABS.values():
            with st.container(key=draw.__name__):
                draw(view)
        head.notes(view)


@pytest.fixture(scope="module")
def demo(example_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "data"
    copy_examples_to(example_data, folder)
    return folder


def one_of_each_kind(folder: Path) -> list[str]:
    """Return one run of each set of tables that hold something of a run, status and origin."""
    with sqlite3.connect(f"file:{folder}/warpboard.db?mode=ro", uri=True) as db:
        tables = db.execute(
            "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c"
            " WHERE m.type = 'table' AND c.name = 'run_id'"
        ).fetchall()
        held: dict[str, set[str]] = {}
        for (table,) in tables:
            for (run_id,) in db.execute(f"SELECT DISTINCT run_id FROM {table}"):
                held.setdefault(run_id, set()).add(table)
        runs = db.execute(
            "SELECT id, status, gpu_model IS NULL, coalesce(workload, '') IN ('', 'command')"
            " FROM runs ORDER BY name"
        ).fetchall()
    return list({(frozenset(held[r[0]]), *r[1:]): r[0] for r in runs}.values())


def shown(run_id: str) -> AppTest:
    at = AppTest.from_function(whole_page, default_timeout=60, kwargs={"run_id": run_id}).run()
    assert not at.exception
    return at


def test_every_tab_of_every_kind_of_example_run_is_drawn(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", str(demo))
    pages = {run_id: shown(run_id) for run_id in one_of_each_kind(demo)}
    assert len(pages) > 20
    assert {i: [e.value for e in at.error] for i, at in pages.items() if at.error} == {}


@pytest.mark.parametrize("left", [b"", b"PAR1", b"x" * 5000])
def test_records_that_a_power_cut_left_unwritten_do_not_cost_the_page(
    left: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = DataDir(root=tmp_path / "data").ensure()
    run_id = import_paths(made, [H100 / "nsys/decode_eager.sqlite"]).run_id
    files = list(made.spans.rglob("*.parquet"))
    for file in files:
        file.write_bytes(left)
    monkeypatch.setenv("WARPBOARD_DATA", str(made.root))

    at = shown(run_id)

    assert len(files) == 3
    assert not at.error

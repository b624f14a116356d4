"""A study's page opens with one grid of runs, says so, and shows every run on one press."""

from pathlib import Path

import pytest
from sqlite_utils import Database
from streamlit.testing.v1 import AppTest

from core.config import DataDir
from tests.history_runs import store_nights

ROOT = Path(__file__).parents[2]


@pytest.fixture
def page(db: Database, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    for batch, latency_ms in ((1, 2.0), (8, 3.0), (1, 1.5)):
        params = {"d_model": 64, "layers": 2, "dtype": "bf16", "batch": batch}
        compile_mode = "default" if latency_ms < 2 else "none"
        store_nights(db, [latency_ms], params=params | {"compile": compile_mode})
    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=60).run()
    at.switch_page("page/studies.py")
    at.query_params["name"] = "decode-latency"
    return at.run()


def tables(at: AppTest) -> str:
    return " ".join(element.proto.body for element in at.get("html"))


def captions(at: AppTest) -> str:
    return " ".join(caption.value.replace("\\", "") for caption in at.caption)


def test_one_grid_is_shown_first_and_every_run_on_a_press(page: AppTest) -> None:
    assert "2 of 3 runs, one grid: batch 1." in captions(page)
    assert "3.00" not in tables(page)

    (toggle,) = (t for t in page.toggle if t.label == "Every run")
    toggle.set_value(True).run()

    assert "All 3 runs." in captions(page)
    assert "3.00" in tables(page)


def test_a_filter_of_the_readers_own_shows_all_that_fits(page: AppTest) -> None:
    page.text_input(key="filter").set_value("batch:8").run()

    assert "one grid" not in captions(page)
    assert "3.00" in tables(page)

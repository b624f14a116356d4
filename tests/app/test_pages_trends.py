"""The page of trends: lines of a job, what changed, and the ways on from there."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sqlite_utils import Database
from streamlit.testing.v1 import AppTest

from app.ui import links
from core.config import DataDir
from tests.history_runs import store_nights

ROOT = Path(__file__).parents[2]
AT = 20


@pytest.fixture
def open_page(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))

    def opened(**query: str) -> AppTest:
        at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=90)
        for name, value in query.items():
            at.query_params[name] = value
        at.run()
        at.switch_page(links.TRENDS).run()
        assert not at.exception
        return at

    return opened


def slowed(db: Database) -> list[str]:
    values = 2.0 * np.exp(np.random.default_rng(7).normal(0, 0.004, 26))
    values[AT:] *= 1.08
    environments = [{"torch": "2.11.0" if i < AT else "2.12.0"} for i in range(26)]
    return store_nights(db, values.tolist(), environments=environments)


def test_a_change_is_shown_with_what_differs_and_its_comparison(
    db: Database, open_page: Callable[..., AppTest]
) -> None:
    ids = slowed(db)

    at = open_page()

    said = " ".join(c.value.replace("\\", "") for c in at.caption)
    assert "From nightly 19 to nightly 20: environment.torch 2.11.0 \u2192 2.12.0." in said
    assert any(f"trend {ids[-1]}" in block.value for block in at.code)
    (button,) = [b for b in at.button if b.label == "Compare both sides"]
    assert button is not None


def test_without_a_repeated_job_the_page_says_what_makes_one(
    db: Database, open_page: Callable[..., AppTest]
) -> None:
    store_nights(db, [2.0])

    at = open_page()

    assert "No job has been measured twice yet" in " ".join(
        str(h.proto.body) for h in at.get("html")
    )


def test_of_three_runs_no_page_says_that_nothing_changed(
    db: Database,
    data_dir: DataDir,
    open_page: Callable[..., AppTest],
) -> None:
    store_nights(db, [2.0, 2.01, 2.4])

    trends = texts(open_page())
    overview = texts(AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=90).run())

    assert "No change" not in trends and "Not known: a change needs 7 runs." in trends
    assert "No: the newest" not in overview
    assert "Not known: no job has the 7 runs that a change needs." in overview


def texts(at: AppTest) -> str:
    links_shown = [str(link.proto.label) for link in at.get("page_link")]
    return "\n".join([*links_shown, *(str(c.value) for c in at.caption)]).replace("\\", "")


def test_overview_starts_from_changes_and_from_runs_that_differ_in_one_field(
    db: Database, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    slowed(db)
    store_nights(db, [1.5], params={"compile": "default"}, name="compiled")

    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=90).run()

    assert not at.exception
    assert "worse: nightly 25" in texts(at) and "compile: none \u2192 default" in texts(at)
    assert "No experiment is predicted" in texts(at)


def test_compare_without_sides_offers_what_differs_in_one_field(
    db: Database, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    store_nights(db, [2.0])
    store_nights(db, [1.5], params={"compile": "default"}, name="compiled")

    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=90).run()
    at.switch_page(links.COMPARE).run()

    assert not at.exception and "compile: none \u2192 default" in texts(at)


def test_side_a_of_compare_may_be_the_last_good_runs(
    db: Database, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    ids = store_nights(db, [2.0, 2.0, 2.0, 2.1])

    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=90).run()
    at.switch_page(links.COMPARE)
    at.query_params["a"], at.query_params["b"] = "last:2", ids[3]
    at.run()

    assert not at.exception and not at.error
    html = " ".join(str(h.proto.body) for h in at.get("html"))
    assert "nightly 1 (+1)" in html


def test_a_switch_of_the_job_is_on_or_off(db: Database, open_page: Callable[..., AppTest]) -> None:
    store_nights(db, [2.0, 2.1], params={"compile": "none", "cuda_graph": False})

    at = open_page()

    assert any("cuda_graph off" in str(e.proto.body) for e in at.get("html"))

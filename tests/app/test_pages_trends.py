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

    assert "No job was measured twice yet" in " ".join(str(h.proto.body) for h in at.get("html"))

"""The gallery of studies: a picture, the question, how many runs feed it."""

from pathlib import Path

import pytest
from sqlite_utils import Database
from streamlit.testing.v1 import AppTest

from analysis.colours import gpu_colour
from analysis.runview import RunView
from analysis.studies import drawn_cells, list_studies
from app.charts.thumbnail import thumbnail
from app.pictures import Thumbnail, read_pictures, write_pictures
from app.ui import links, study_data
from core.config import DataDir
from db.fetch import run_view
from tests.history_runs import GPU, store_nights

ROOT = Path(__file__).parents[2]


@pytest.fixture
def feeding(db: Database, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    params = {"d_model": 64, "layers": 2, "dtype": "bf16", "mode": "decode"}
    return [
        *store_nights(db, [2.0], params=params | {"compile": "none"}),
        *store_nights(db, [1.0], params=params | {"compile": "default"}),
    ]


def picture(name: str, views: list[RunView]) -> Thumbnail:
    return thumbnail(drawn_cells(name, views))


def test_a_picture_counts_the_runs_that_feed_the_study(
    feeding: list[str], db: Database, data_dir: DataDir
) -> None:
    views = [run_view(db, data_dir, run_id) for run_id in feeding]

    found = picture("decode-latency", views)

    assert found.num_runs == 2 and found.svg.count("<rect") == 2


def test_a_study_without_runs_shows_published_figures_where_there_are_some() -> None:
    found = picture("decode-latency", [])

    assert found.num_runs == 0 and found.svg.startswith("<svg")
    assert picture("scaling", []).svg == ""


def test_gpus_have_their_colour_in_pictures(
    feeding: list[str], db: Database, data_dir: DataDir
) -> None:
    views = [run_view(db, data_dir, run_id) for run_id in feeding]

    assert gpu_colour(GPU) in picture("gpu-scoreboard", views).svg


def test_every_study_has_a_question_in_one_sentence() -> None:
    assert [s.name for s in list_studies() if not 10 < len(s.question) < 90] == []
    assert all(study.question.endswith("?") for study in list_studies())


def test_studies_open_as_a_gallery_and_a_link_opens_one(feeding: list[str]) -> None:
    at = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=90).run()
    at.switch_page(links.STUDIES).run()

    shown = [link.proto.label.replace("\\", "") for link in at.get("page_link")]
    assert not at.exception
    assert {study.title for study in list_studies()} <= set(shown)
    at.query_params["name"] = "decode-latency"
    at.run()
    assert not at.exception and at.selectbox[0].value == "decode-latency"
    assert at.toggle(key="published").value is True


def test_pictures_are_made_anew_when_a_run_is_added_and_shown_until_then(
    feeding: list[str], db: Database
) -> None:
    made = study_data.fetch_thumbnail("decode-latency")

    assert study_data.kept_thumbnails() == {"decode-latency": made}
    assert study_data.old_thumbnails(["decode-latency"]) == set()
    store_nights(db, [3.0], first=9)
    assert study_data.old_thumbnails(["decode-latency", "scaling"]) == {"decode-latency", "scaling"}
    assert study_data.kept_thumbnails() == {
        "decode-latency": made
    }  # shown until there is a new one
    again = study_data.fetch_thumbnail("decode-latency")
    assert again.num_runs == made.num_runs + 1


def test_pictures_outlive_the_server_and_a_broken_file_is_no_obstacle(tmp_path: Path) -> None:
    path, of = tmp_path / "pictures.json", ("1", 3, "2026-11-28")
    kept = {"decode-latency": (of, Thumbnail(svg="<svg/>", num_runs=3))}

    write_pictures(path, kept)
    assert read_pictures(path) == kept
    path.write_text('[["decode-latency", null]]')
    assert read_pictures(path) == {}
    assert read_pictures(tmp_path / "none.json") == {}
    write_pictures(tmp_path / "no such folder" / "pictures.json", kept)

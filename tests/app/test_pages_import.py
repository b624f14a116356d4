"""The Import page: one run or several, a cleared form, and files that are here already."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.config import DataDir
from db.connection import opened
from db.runs import list_rows
from tests.app.test_pages import open_page, texts

BEFORE = ("before.csv", b"latency_ms\n1.0\n1.1\n1.2\n", "text/csv")
AFTER = ("after.csv", b"latency_ms\n0.5\n0.6\n0.7\n", "text/csv")


def names_of(folder: Path) -> list[str]:
    with opened(DataDir(root=folder).db_path) as db:
        return sorted(row["name"] for row in list_rows(db))


def drop(at: AppTest, *files: tuple[str, bytes, str]) -> None:
    """Put files into the page's form."""
    at.file_uploader[0].set_value(list(files)).run()


def press(at: AppTest, label: str) -> None:
    next(b for b in at.button if b.label == label).click().run()


def test_a_finished_import_clears_the_form_so_the_next_file_is_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), "import_")
    drop(at, BEFORE)
    at.text_input[0].set_value("the old kernel").run()
    press(at, "Import")
    assert at.success[0].value.replace("\\", "") == "Imported: the old kernel"
    assert at.text_input[0].value == ""
    assert not at.file_uploader[0].value

    drop(at, AFTER)
    press(at, "Import")
    assert names_of(tmp_path) == ["after", "the old kernel"]


def test_the_same_file_again_is_said_and_renames_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), "import_")
    drop(at, BEFORE)
    press(at, "Import")
    drop(at, BEFORE)
    at.text_input[0].set_value("another name").run()
    press(at, "Import")
    said = at.success[0].value.replace("\\", "")
    assert "This file is here already, as before of" in said and "Nothing was changed" in said
    assert names_of(tmp_path) == ["before"]


def test_files_that_seem_two_runs_become_two_and_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), "import_")
    drop(at, BEFORE, AFTER)
    assert at.radio[0].value == "Several runs"
    assert "before.csv and after.csv are each a table" in texts(at).replace("\\", "")
    press(at, "Import 2 runs")
    assert names_of(tmp_path) == ["after", "before"]
    assert {"Compare the two", "Open before", "Open after"} <= {b.label for b in at.button}


def test_one_that_is_refused_does_not_stop_the_other_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), "import_")
    drop(at, BEFORE, ("broken.csv", b"\x00\x01\x02", "text/csv"))
    press(at, "Import 2 runs")
    assert names_of(tmp_path) == ["before"]
    assert len(at.error) == 1 and "broken" in at.error[0].value.replace("\\", "")


def test_a_refused_file_leaves_the_form_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, str(tmp_path), "import_")
    drop(at, BEFORE)
    at.text_input[1].set_value("no sign").run()
    press(at, "Import")
    assert "is not of the form name=value" in at.error[0].value.replace("\\", "")
    assert at.text_input[1].value == "no sign"
    assert names_of(tmp_path) == []

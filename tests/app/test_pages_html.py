"""Text out of captures, and what people or workers write, is never rendered as HTML."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.imports import import_paths
from core.config import data_dir
from core.spec import JobSpec
from db.connection import opened
from db.runs import insert_run, set_notes
from db.workers import register_worker
from tests.app.test_pages import CAPTURES, open_page

EVIL = "<img src=x onerror=alert(1)>![m](//evil.example/p)"
MARKDOWN = "](//evil"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A data folder where every text that somebody else may choose is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    capture = folder / "evil.sqlite"
    shutil.copyfile(CAPTURES / "nsys/decode_eager.sqlite", capture)
    with sqlite3.connect(capture) as names:
        names.execute("UPDATE StringIds SET value = value || ?", [EVIL])
        names.execute("UPDATE NVTX_EVENTS SET text = text || ? WHERE text IS NOT NULL", [EVIL])
    data = data_dir(str(folder / "data"))
    params = {"workload": "decode", "compile": EVIL}
    made = [
        import_paths(data, paths, name=f"{EVIL} {i}", params=params).run_id
        for i, paths in enumerate(([capture], [CAPTURES / "ncu/decode_eager.raw.csv"]))
    ]
    with opened(data.db_path) as db:
        set_notes(db, made[0], EVIL)
        insert_run(db, spec=JobSpec(workload="decode", params={"x": EVIL}, gpu=EVIL), name=EVIL)
        gpu = {"model": EVIL, "uuid": "GPU-1", "driver": EVIL}
        info = {"host_label": EVIL, "tools": {"nsys": {"path": EVIL, "fault": EVIL}}}
        register_worker(
            db, "w<b>1", version=EVIL, queues=[EVIL], gpus=[gpu, {"model": EVIL}], info=info
        )
        db.execute("UPDATE runs SET error = ? WHERE status <> 'queued'", [EVIL])
        db.conn.commit()
    yield {"data": str(data.root), "a": made[0], "b": made[1]}


def rendered(at: AppTest) -> str:
    """Return what the browser takes for HTML: html elements, and Markdown that allows it."""
    found = [str(e.proto.body) for e in at.get("html")]
    found += [str(e.value) for e in (*at.markdown, *at.caption) if _allows_html(e)]
    return "\n".join(found)


PLAIN = ("arrow_data_frame", "code", "text", "json", "html", "bidi_component", "plotly_chart")
"""Elements that show their text as it is; the browser's part of tables never reads Markdown."""
NO_MARKDOWN = (
    "value",
    "default",
    "id",
    "key",
    "url",
    "page",
    "query_string",
    "form_id",
    "raw_values",
)
SELECTED = ("raw_value",)
OPTIONS_ARE_TEXT = ("selectbox", "multiselect", "text_input", "text_area", "number_input")


def markdown_of(at: AppTest) -> list[str]:
    """Return every text of a page that the browser reads as Markdown: labels, bodies, tooltips."""
    found: list[str] = []

    def walk(node: Any) -> None:
        kind = getattr(node, "type", "")
        if kind not in PLAIN and getattr(node, "proto", None) is not None:
            skipped = (*NO_MARKDOWN, *SELECTED, *(("options",) if kind in OPTIONS_ARE_TEXT else ()))
            found.extend(f"{kind}: {text}" for text in texts_of(node.proto, skipped))
        for child in getattr(node, "children", {}).values():
            walk(child)

    walk(at._tree)
    return found


def texts_of(proto: Any, skipped: tuple[str, ...]) -> list[str]:
    """Return the texts in a message of Streamlit, but for those in skipped fields."""
    found: list[str] = []
    for field, value in proto.ListFields():
        if field.name in skipped:
            continue
        values = value if field.is_repeated else [value]
        for one in values:
            if isinstance(one, str):
                found.append(one)
            elif hasattr(one, "ListFields"):
                found.extend(texts_of(one, skipped))
    return found


def _allows_html(element: Any) -> bool:
    return bool(getattr(element.proto, "allow_html", False))


@pytest.mark.parametrize("page", ["overview", "submit", "queue", "runs", "gpus"])
def test_lists_show_hostile_text_as_text(
    hostile: dict[str, str], monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    at = open_page(monkeypatch, hostile["data"], page)
    assert not at.exception
    assert "<img src=x" not in rendered(at)
    assert [text for text in markdown_of(at) if MARKDOWN in text] == []


@pytest.mark.parametrize("tab", ["Kernels", "Phases", "Environment", "Files", "Reproduce"])
def test_run_shows_hostile_text_as_text(
    hostile: dict[str, str], monkeypatch: pytest.MonkeyPatch, tab: str
) -> None:
    at = open_page(monkeypatch, hostile["data"], "run", run_id=hostile["a"], tab=tab)
    assert not at.exception
    assert "<img src=x" not in rendered(at)


def test_comparison_shows_hostile_text_as_text(
    hostile: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, hostile["data"], "compare", a=hostile["a"], b=hostile["b"])
    assert "<img src=x" not in rendered(at)


def test_check_would_see_html_that_got_through(tmp_path: Path) -> None:
    def page() -> None:
        import streamlit as st

        st.html("<img src=x>")
        st.markdown("<img src=x>", unsafe_allow_html=True)

    at = AppTest.from_function(page).run()
    assert rendered(at).count("<img src=x") == 2


@pytest.mark.parametrize("tab", ["Overview", "Kernels", "Phases", "Memory", "Files", "Reproduce"])
def test_run_reads_no_markdown_of_others(
    hostile: dict[str, str], monkeypatch: pytest.MonkeyPatch, tab: str
) -> None:
    at = open_page(monkeypatch, hostile["data"], "run", run_id=hostile["a"], tab=tab)
    assert [text for text in markdown_of(at) if MARKDOWN in text] == []


def test_comparison_reads_no_markdown_of_others(
    hostile: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(monkeypatch, hostile["data"], "compare", a=hostile["a"], b=hostile["b"])
    assert [text for text in markdown_of(at) if MARKDOWN in text] == []


def test_check_would_see_markdown_that_got_through() -> None:
    def page() -> None:
        import streamlit as st

        st.pills("a", ["![m](//evil.example/p)"])
        st.button("b", help="![m](//evil.example/q)")

    found = "\n".join(markdown_of(AppTest.from_function(page).run()))
    assert "](//evil.example/p)" in found
    assert "](//evil.example/q)" in found

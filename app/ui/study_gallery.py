"""All studies at a glance: a small picture, the question in a sentence, how many runs feed it."""

import base64
import time
from collections.abc import Sequence

import streamlit as st

from analysis.studies import Study, list_studies
from app.pictures import Thumbnail
from app.ui import links, study_data
from app.ui.format import many
from app.ui.study_view import place_of
from app.ui.widgets import plain_markdown

PICTURE_PX = 84
BUDGET_S = 0.6
"""Time for pictures in one go: the page is there at once, the others come one after another."""


def gallery() -> None:
    """Draw a card per study, ours first."""
    studies = sorted(list_studies(), key=place_of)
    _cards([s for s in studies if not s.is_publication], key="ours")
    st.subheader("As published", anchor=False)
    _cards([s for s in studies if s.is_publication], key="published")


def _cards(studies: Sequence[Study], *, key: str) -> None:
    """Draw the cards at once; while pictures are missing, again every second with more of them."""
    is_first = True

    def draw() -> None:
        nonlocal is_first
        _grid(studies, budget_s=0 if is_first else BUDGET_S)
        is_first = False

    waits = bool(study_data.old_thumbnails(study.name for study in studies))
    st.fragment(draw, run_every="1s" if waits else None)()


def _grid(studies: Sequence[Study], *, budget_s: float) -> None:
    end_s = time.monotonic() + budget_s
    grid = st.grid("auto", min_column_width=260, border=True, gap="small")
    old = study_data.old_thumbnails(study.name for study in studies)
    pictures = study_data.kept_thumbnails()
    for study in studies:
        if study.name in old and time.monotonic() < end_s:
            pictures[study.name] = study_data.fetch_thumbnail(study.name)
        with grid.cell(), st.container(gap="xxsmall"):
            _card(study, pictures.get(study.name))
    if old and not study_data.old_thumbnails(old):
        st.rerun()


def _card(study: Study, thumbnail: Thumbnail | None) -> None:
    st.html(
        f'<div style="height:{PICTURE_PX}px">{_picture(thumbnail.svg) if thumbnail else ""}</div>'
    )
    st.page_link(
        links.STUDIES, label=plain_markdown(study.title), query_params={"name": study.name}
    )
    fed = "\u2026" if thumbnail is None else _fed(study, thumbnail.num_runs)
    st.caption(plain_markdown(f"{study.question} {fed}"))


def _picture(svg: str) -> str:
    """Return a picture as HTML; the page takes no SVG as it is."""
    if not svg:
        return ""
    text = base64.b64encode(svg.encode()).decode()
    return (
        f'<img alt="" src="data:image/svg+xml;base64,{text}"'
        f' style="width:100%;height:{PICTURE_PX}px;display:block">'
    )


def _fed(study: Study, num_runs: int) -> str:
    if num_runs:
        return f"From {many(num_runs, 'run')}." if num_runs > 1 else "From one run."
    has_figures = any(table.sources for table in study.tables)
    return "Published figures only." if has_figures else "No run yet."

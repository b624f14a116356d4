"""Entry of the dashboard: navigation and style. Served by `app.serve`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402
from streamlit.navigation.page import StreamlitPage  # noqa: E402

from app.ui import links, login, style, warm, widgets  # noqa: E402

st.set_page_config(
    page_title="Warpboard", page_icon=str(ROOT / "app/static/icon.svg"), layout="wide"
)
style.inject()
st.logo(str(ROOT / "app/static/logo.svg"))
login.require_login()

PAGES = (
    (links.OVERVIEW, "Overview", "dashboard", "What is stored and what is running"),
    (links.SUBMIT, "Submit", "add_circle", "Choose a workload, its sizes and a GPU, and run it"),
    (links.QUEUE, "Queue", "pending_actions", "What runs and what waits"),
    (links.RUNS, "Runs", "table_rows", "Every run, to filter"),
    (links.COMPARE, "Compare", "compare_arrows", "Which is faster, is it real, and why"),
    (links.STUDIES, "Studies", "insights", "Tables over many runs, as people publish them"),
    (links.ADVICE, "Advice", "target", "How predictions of experiments fared"),
    (links.TRENDS, "Trends", "timeline", "The same job over time, and where it changed"),
    (links.GPUS, "GPUs", "memory", "What each GPU can do"),
    (links.IMPORT, "Import", "upload_file", "Read captures of your own program"),
    (links.DEFINITIONS, "Definitions", "menu_book", "What every number means"),
    (links.RUN, "Run", "query_stats", "One run"),
)


def _page(path: str, title: str, icon: str, text: str) -> StreamlitPage:
    return st.Page(
        path,
        title=title,
        icon=f":material/{icon}:",
        help=text,
        url_path="import" if path == links.IMPORT else None,
        default=path == links.OVERVIEW,
        visibility="hidden" if path == links.RUN else "visible",
    )


warm.load()
login.account()
with widgets.page_border():
    st.navigation([_page(*page) for page in PAGES], position="top").run()

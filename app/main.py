"""Entry of the dashboard: navigation and style. Served by `app.serve`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from app.ui import login, style, warm, widgets  # noqa: E402

st.set_page_config(
    page_title="Warpboard", page_icon=str(ROOT / "app/static/icon.svg"), layout="wide"
)
style.inject()
st.logo(str(ROOT / "app/static/logo.svg"))
login.require_login()

PAGES = [
    st.Page(
        "page/overview.py",
        title="Overview",
        icon=":material/dashboard:",
        default=True,
        help="What is here and what is running",
    ),
    st.Page(
        "page/submit.py",
        title="Submit",
        icon=":material/add_circle:",
        help="Choose a workload, its sizes and a GPU, and run it",
    ),
    st.Page(
        "page/queue.py",
        title="Queue",
        icon=":material/pending_actions:",
        help="What runs and what waits",
    ),
    st.Page(
        "page/runs.py", title="Runs", icon=":material/table_rows:", help="Every run, to filter"
    ),
    st.Page(
        "page/compare.py",
        title="Compare",
        icon=":material/compare_arrows:",
        help="Which is faster, is it real, and why",
    ),
    st.Page(
        "page/studies.py",
        title="Studies",
        icon=":material/insights:",
        help="Tables over many runs, as people publish them",
    ),
    st.Page(
        "page/advice.py",
        title="Advice",
        icon=":material/target:",
        help="How predictions of experiments fared",
    ),
    st.Page(
        "page/trends.py",
        title="Trends",
        icon=":material/timeline:",
        help="The same job over time, and where it changed",
    ),
    st.Page("page/gpus.py", title="GPUs", icon=":material/memory:", help="What each GPU can do"),
    st.Page(
        "page/import_.py",
        title="Import",
        url_path="import",
        icon=":material/upload_file:",
        help="Read captures of your own program",
    ),
    st.Page(
        "page/definitions.py",
        title="Definitions",
        icon=":material/menu_book:",
        help="What every number means",
    ),
    st.Page(
        "page/run.py",
        title="Run",
        icon=":material/query_stats:",
        visibility="hidden",
        help="One run",
    ),
]
warm.load()
login.account()
with widgets.page_border():
    st.navigation(PAGES, position="top").run()

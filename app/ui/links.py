"""Where pages are, and the links that lead to them with their inputs."""

from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit

import streamlit as st

from app.serve.addresses import base_path

OVERVIEW = "page/overview.py"
SUBMIT = "page/submit.py"
QUEUE = "page/queue.py"
RUNS = "page/runs.py"
RUN = "page/run.py"
COMPARE = "page/compare.py"
STUDIES = "page/studies.py"
ADVICE = "page/advice.py"
TRENDS = "page/trends.py"
GPUS = "page/gpus.py"
IMPORT = "page/import_.py"
DEFINITIONS = "page/definitions.py"


def open_run(run_id: str) -> None:
    """Go to a run's page."""
    st.switch_page(RUN, query_params={"run_id": run_id})


def open_compare(a: Iterable[str], b: Iterable[str]) -> None:
    """Go to the comparison of two sides."""
    st.switch_page(COMPARE, query_params={"a": ",".join(a), "b": ",".join(b)})


def share_url(page: str, **params: str) -> str:
    """Return the absolute address of a page with these inputs, as this browser reaches it."""
    parts = urlsplit(st.context.url or "")
    origin = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
    query = urlencode({k: v for k, v in params.items() if v})
    return f"{origin}{base_path()}/{page}" + (f"?{query}" if query else "")

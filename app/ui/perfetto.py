"""One press opens a run's trace in the Perfetto UI that this dashboard serves itself."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import streamlit as st

from app.perfetto import PREFIX, why_not
from app.serve.addresses import base_path

ADDRESS = f"{base_path()}{PREFIX}/index.html#!/viewer"
"""There the UI waits for a trace; on its first page some builds look for one of their own."""

_HERE = Path(__file__).parent
_COMPONENT = st.components.v2.component(
    "warpboard_perfetto",
    html='<button type="button">Open in Perfetto</button><span role="status"></span>',
    css=(_HERE / "perfetto.css").read_text(encoding="utf-8"),
    js=(_HERE / "perfetto.js").read_text(encoding="utf-8"),
)


def open_or_download(make_trace: Callable[[], bytes], *, title: str, file_name: str) -> None:
    """Draw the download of a trace, before it the button that opens it where that is possible.

    `make_trace` returns gzip of a Chrome trace and is called when a button is pressed.
    """
    reason = why_not()
    bar = st.container(horizontal=True, vertical_alignment="center")
    if not reason:
        with bar:
            _button(make_trace, title, file_name)
    bar.download_button(
        "Chrome trace for Perfetto",
        data=make_trace,
        file_name=file_name,
        mime="application/gzip",
        icon=":material/download:",
        on_click="ignore",
        help="All launches and ranges; opens in Perfetto or chrome://tracing",
    )
    if reason:
        st.caption(reason)


@st.fragment
def _button(make_trace: Callable[[], bytes], title: str, file_name: str) -> None:
    """Send the trace once, in the run that the press caused."""
    key = f"perfetto_{file_name}"
    asked = st.session_state.pop(f"{key}_asked", False)
    data: dict[str, object] = {"address": ADDRESS}
    if asked:
        data |= {
            "title": title,
            "fileName": file_name,
            "trace": pd.DataFrame({"bytes": [make_trace()]}),
        }
    _COMPONENT(key=key, data=data, on_open_change=lambda: _ask(key), width="content")


def _ask(key: str) -> None:
    st.session_state[f"{key}_asked"] = True

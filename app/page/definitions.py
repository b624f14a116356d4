"""What every number means."""

import streamlit as st

from app.ui import definitions_view

st.title("Definitions")
query = st.text_input(
    "Search",
    key="search",
    bind="query-params",
    icon=":material/search:",
    placeholder="name of a metric, e.g. idle, GEMM, MBU",
)
definitions_view.numbers(query or "")
definitions_view.classes()

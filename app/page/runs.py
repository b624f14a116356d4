"""Which runs do I have? Filter, choose, compare, label, delete."""

import streamlit as st

from app.ui import cached, data, runs_table, style
from db import runs
from db.search import QuerySyntaxError

SORTS = {
    "newest": ("created_at", True),
    "oldest": ("created_at", False),
    "fastest": ("latency_ms", False),
    "slowest": ("latency_ms", True),
    "most memory": ("peak_memory_bytes", True),
    "most idle": ("idle_frac", True),
    "name": ("name", False),
}
PAGE_SIZE = 100

st.title("Runs")
top = st.container(horizontal=True, vertical_alignment="bottom")
query = top.text_input(
    "Filter",
    key="q",
    bind="query-params",
    placeholder="gpu:4090 compile:none latency<3 tag:paper",
    icon=":material/filter_alt:",
)
order = top.selectbox("Sort", list(SORTS), key="sort", bind="query-params", width=150)
with top.popover("Columns", icon=":material/view_column:"):
    columns = st.multiselect(
        "Columns",
        runs_table.COLUMNS,
        default=runs_table.DEFAULT_COLUMNS,
        key="columns",
        bind="query-params",
    )
with top.popover("Filter help", icon=":material/help:"):
    runs_table.filter_help()
runs_table.hints(query or "")

sort, descending = SORTS[order]
page = runs_table.asked_page()
try:
    frame, total = data.list_runs(
        query or "",
        sort=sort,
        descending=descending,
        limit=PAGE_SIZE,
        offset=(page - 1) * PAGE_SIZE,
    )
except QuerySyntaxError as exc:
    runs_table.syntax_error(query or "", exc)
    st.stop()

if frame.empty and (query or page > 1):
    unknown = cached.read(runs.unknown_fields, query or None)
    why = f" No run has a parameter named {', '.join(unknown)}." if unknown else ""
    style.empty_state("No run matches", f"Remove a term, or open the filter help.{why}")
elif frame.empty:
    style.empty_state(
        "No runs yet", "Load the example data on the Overview, submit a run, or import captures."
    )
else:
    runs_table.draw(frame, columns, total)
pages = -(-total // PAGE_SIZE)
if pages > 1:
    st.pagination(pages, key="page", bind="query-params")

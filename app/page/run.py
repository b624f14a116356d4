"""What happened in this run, and what limits it?"""

import streamlit as st

from app.ui import cached, data, links, style
from app.ui.run import head
from app.ui.run.tabs import has_result, tabs_of
from app.ui.widgets import said_plainly
from db import runs

run_id = st.query_params.get("run_id", "")
if not run_id:
    style.empty_state("No run chosen", "Choose one in the Runs table.")
    st.page_link(links.RUNS, label="Runs", icon=":material/table_rows:")
    st.stop()
with said_plainly():
    view = data.fetch_view(cached.read(runs.resolve_run, run_id))

head.title(view)
if head.is_active(view.run):
    head.live(view.run.id)
    st.stop()
head.answer(view)
if has_result(view):
    head.headline(view)
head.clocks(view)
head.warnings(view)
tabs = tabs_of(view)
first = head.first_tab(view)
opened = st.tabs(
    list(tabs),
    default=first if first in tabs else list(tabs)[-1],
    key="tab",
    on_change="rerun",
    bind="query-params",
)
for tab, draw in zip(opened, tabs.values(), strict=True):
    if tab.open:
        with tab:
            draw(view)
head.notes(view)
head.labels(view.run)

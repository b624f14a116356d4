"""What happened in this run, and what limits it?"""

import streamlit as st

from app.ui import data, links, run_head, style
from app.ui.run_tabs import TABS
from app.ui.widgets import said_plainly

run_id = st.query_params.get("run_id", "")
if not run_id:
    style.empty_state("No run chosen", "Choose one in the table of runs.")
    st.page_link(links.RUNS, label="Runs", icon=":material/table_rows:")
    st.stop()
with said_plainly():
    view = data.fetch_view(data.resolve_one(run_id))

run_head.title(view)
if run_head.is_active(view.run):
    run_head.live(view.run.id)
    st.stop()
run_head.answer(view)
run_head.headline(view)
run_head.clocks(view)
run_head.warnings(view)
opened = st.tabs(
    list(TABS),
    default=run_head.first_tab(view),
    key="tab",
    on_change="rerun",
    bind="query-params",
)
for tab, draw in zip(opened, TABS.values(), strict=True):
    if tab.open:
        with tab:
            draw(view)
run_head.notes(view)
run_head.labels(view.run)

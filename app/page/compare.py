"""Which is faster, by how much, is it real, and why?"""

import streamlit as st

from app.ui import compare_curves, compare_detail, compare_head, data, links, style
from app.ui.widgets import said_plainly

st.title("Compare")
a, b, metric = compare_head.inputs()
if not a or not b:
    style.empty_state(
        "Choose two sides",
        "Each is one run, several runs of the same job separated by commas, or a filter.",
    )
    st.page_link(links.RUNS, label="Choose them in the table", icon=":material/table_rows:")
    st.stop()
with said_plainly():
    ids_a, ids_b = data.resolve_side(a), data.resolve_side(b)
    views_a, views_b = data.fetch_views(ids_a), data.fetch_views(ids_b)
    found = data.fetch_comparison(ids_a, ids_b, metric)

compare_head.names(found, views_a, views_b)
compare_head.verdict(found)
compare_head.headline(views_a[0], views_b[0])
compare_detail.actions(found, ids_a, ids_b, views_a, views_b)
compare_detail.differences(found)
compare_detail.waterfalls(found, views_a[0], views_b[0])
compare_curves.scoreboard(found)
compare_detail.kernel_pairs(found)
compare_curves.memory_sites(found)
compare_curves.overlays(views_a, views_b)

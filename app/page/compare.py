"""Which is faster, by how much, is it real, and why?"""

import streamlit as st

from app.ui import data, links, style
from app.ui.compare import curves, detail, follow_up, head, several
from app.ui.widgets import said_plainly

st.title("Compare")
a, b, metric = head.inputs()
if not a or not b:
    if data.has_runs():
        style.empty_state(
            "Choose two sides",
            "Each side is one run, several runs of the same job separated by commas, or a filter.",
        )
        st.page_link(links.RUNS, label="Choose them in the table", icon=":material/table_rows:")
    else:
        style.empty_state("Nothing to compare yet", "A comparison needs two runs.")
        st.page_link(links.OVERVIEW, label="Load the example data", icon=":material/database:")
        st.page_link(links.IMPORT, label="Import captures", icon=":material/upload_file:")
    head.offered()
    st.stop()
with said_plainly():
    sides = head.repeats(*data.resolve_sides(a, b))
    ids_a, ids_b = sides.a, sides.b
    views_a, views_b = data.fetch_views(ids_a), data.fetch_views(ids_b)
    found = data.fetch_comparison(ids_a, ids_b, metric)

whole, all_a, all_b = found, views_a, views_b
head.names(found, views_a, views_b)
if found.pairs:
    several.measurements(found)
    pair = several.chosen(found.pairs)
    ids_a, ids_b = pair.a.run_ids, pair.b.run_ids
    views_a, views_b = data.fetch_views(ids_a), data.fetch_views(ids_b)
    found = data.fetch_comparison(ids_a, ids_b, metric)
head.verdict(found)
follow_up.repeats(whole, all_a, all_b)
follow_up.isolate(found, views_a, views_b)
head.headline(found, views_a, views_b)
detail.actions(whole)
detail.differences(found)
detail.waterfalls(found, [*views_a, *views_b])
detail.stacks(found, [*views_a, *views_b])
curves.scoreboard(whole)
detail.kernel_pairs(found, [*views_a, *views_b])
curves.memory_sites(found)
curves.overlays(all_a, all_b)

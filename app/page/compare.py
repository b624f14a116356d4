"""Which is faster, by how much, is it real, and why?"""

import streamlit as st

from app.ui import (
    compare_curves,
    compare_detail,
    compare_head,
    compare_next,
    compare_several,
    data,
    links,
    style,
)
from app.ui.widgets import said_plainly

st.title("Compare")
a, b, metric = compare_head.inputs()
if not a or not b:
    style.empty_state(
        "Choose two sides",
        "Each is one run, several runs of the same job separated by commas, or a filter.",
    )
    st.page_link(links.RUNS, label="Choose them in the table", icon=":material/table_rows:")
    compare_head.offered()
    st.stop()
with said_plainly():
    sides = compare_head.repeats(*data.resolve_sides(a, b))
    ids_a, ids_b = sides.a, sides.b
    views_a, views_b = data.fetch_views(ids_a), data.fetch_views(ids_b)
    found = data.fetch_comparison(ids_a, ids_b, metric)

whole, all_a, all_b = found, views_a, views_b
compare_head.names(found, views_a, views_b)
if found.pairs:
    compare_several.measurements(found)
    pair = compare_several.chosen(found.pairs)
    ids_a, ids_b = pair.a.run_ids, pair.b.run_ids
    views_a, views_b = data.fetch_views(ids_a), data.fetch_views(ids_b)
    found = data.fetch_comparison(ids_a, ids_b, metric)
compare_head.verdict(found)
compare_next.repeats(whole, all_a, all_b)
compare_next.isolate(found, views_a, views_b)
compare_head.headline(found, views_a, views_b)
compare_detail.actions(whole)
compare_detail.differences(found)
compare_detail.waterfalls(found, [*views_a, *views_b])
compare_detail.stacks(found, [*views_a, *views_b])
compare_curves.scoreboard(whole)
compare_detail.kernel_pairs(found, [*views_a, *views_b])
compare_curves.memory_sites(found)
compare_curves.overlays(all_a, all_b)

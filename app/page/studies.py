"""The tables that people publish, filled from these runs."""

import streamlit as st

from app.ui import study_data, study_view
from app.ui.widgets import said_plainly

st.title("Studies")
if "name" not in st.query_params:
    study_view.gallery()
    st.stop()
name, query, published, every = study_view.inputs()
with said_plainly():
    opened = study_data.fetch_study(name, query, published, every)
found = opened.result
study_view.grid_of(opened, query)
study_view.head(found, query)
for table, pivot in zip(found.study.tables, found.pivots, strict=True):
    study_view.draw_table(found, table, pivot)
study_view.fits(found)
study_view.notes(found)

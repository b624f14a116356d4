"""Is the same job as fast as it was, and what changed where it is not?"""

import streamlit as st

from app.ui import data, trends_view
from app.ui.widgets import said_plainly

st.title("Trends")
with said_plainly():
    job = trends_view.inputs()
if job is None:
    trends_view.nothing()
    st.stop()
found = data.fetch_history(job)
trends_view.head(found)
trends_view.lines(found)
trends_view.changes(found)
trends_view.runs(found)
trends_view.check_command(found)
